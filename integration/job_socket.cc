#include "integration/job_socket.h"

#include "sync/socket/socket_file.h"

namespace cotune {

void RemoveSocketInHandler() { sync::RemoveNotedSocketFile(); }

}  // namespace cotune
