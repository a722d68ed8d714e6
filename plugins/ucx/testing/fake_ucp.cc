// A library that says it is UCX of a version, and has nothing else, or all functions, none of which
// is called; one that does not even say that; or UCX's other library, with services.
#include <cstdlib>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/ucx/ucx_functions.h"

#define COTUNE_DEFINE(name) \
  extern "C" COTUNE_EXPORT void name() { std::abort(); }

#if defined(COTUNE_FAKE_SERVICES)
COTUNE_UCS_FUNCTIONS(COTUNE_DEFINE)
#elif defined(COTUNE_FAKE_MINOR)
extern "C" COTUNE_EXPORT void ucp_get_version(unsigned* major, unsigned* minor, unsigned* release) {
  *major = 1;
  *minor = COTUNE_FAKE_MINOR;
  *release = 0;
}
#ifdef COTUNE_FAKE_FUNCTIONS
COTUNE_UCP_FUNCTIONS(COTUNE_DEFINE)
#endif
#else
extern "C" COTUNE_EXPORT int ucp_is_another_library() { return 1; }
#endif
