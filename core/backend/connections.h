// How the ranks of a group reach each other, in words: for people, and to tell groups apart.
#ifndef COTUNE_CORE_BACKEND_CONNECTIONS_H_
#define COTUNE_CORE_BACKEND_CONNECTIONS_H_

#include <string>
#include <vector>

namespace cotune {

// texts[r][p]: how rank r sends to rank p; "": not known; a rank that knows nothing may have none.
// "tcp/eth0 between all ranks", or "shm (2 of 6 pairs, as 0 to 1), tcp/eth0 (4 of 6 pairs, as 0 to
// 2)", in the order of the first such pairs; "": nothing is known. Pure.
std::string ConnectionsText(const std::vector<std::vector<std::string>>& texts);

}  // namespace cotune

#endif  // COTUNE_CORE_BACKEND_CONNECTIONS_H_
