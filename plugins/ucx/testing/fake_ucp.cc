// A library that says it is UCX of a version, and has nothing else; or does not even say that.
#include "plugins/api/cotune_backend_v1.h"

#ifdef COTUNE_FAKE_MINOR
extern "C" COTUNE_EXPORT void ucp_get_version(unsigned* major, unsigned* minor, unsigned* release) {
  *major = 1;
  *minor = COTUNE_FAKE_MINOR;
  *release = 0;
}
#else
extern "C" COTUNE_EXPORT int ucp_is_another_library() { return 1; }
#endif
