/* A plugin that is wrong in one way, chosen at compile time by BROKEN_<WAY>. The loader has its own
 * error for each. */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "plugins/api/cotune_backend_v1.h"

#ifdef BROKEN_UNDEFINED_SYMBOL
extern int function_that_is_nowhere(void);
#endif

static cotune_status_t create(const cotune_host_t* host, int32_t device, cotune_backend_t** backend,
                              cotune_error_t* error) {
  (void)host;
  (void)device;
#if defined(BROKEN_CREATE_FAILS)
  strcpy(error->message, "the licence has run out");
  return COTUNE_INTERNAL;
#elif defined(BROKEN_CREATE_UNSUPPORTED)
  strcpy(error->message, "there is no such device here");
  return COTUNE_UNSUPPORTED;
#else
  (void)error;
  static int handle;
  *backend = (cotune_backend_t*)&handle;
  return COTUNE_OK;
#endif
}
static void destroy(cotune_backend_t* backend) { (void)backend; }
static const void* get_extension(const cotune_backend_t* backend, const char* id) {
  (void)backend;
  (void)id;
  return NULL;
}

static void put(cotune_choice_t* first, uint32_t stride, uint32_t capacity, uint32_t index,
                const char* name, uint32_t flags) {
  if (index >= capacity) return;
  cotune_choice_t* entry = (cotune_choice_t*)((char*)first + (size_t)index * stride);
  entry->flags = flags;
  entry->status = COTUNE_OK;
  memset(entry->name, 'x', sizeof(entry->name));
  memcpy(entry->name, name, strlen(name) + (strlen(name) < sizeof(entry->name) - 1 ? 1 : 0));
}

static cotune_status_t list_choices(const cotune_backend_t* backend,
                                    const cotune_problem_t* problem, cotune_choice_t* first,
                                    uint32_t stride, uint32_t capacity, uint32_t* count,
                                    cotune_error_t* error) {
  (void)backend;
  (void)problem;
  (void)error;
#if defined(BROKEN_LIST)
  /* Two defaults, a name twice, a name that is not one, a name without an end, a flag from the
   * future. */
  char endless[sizeof(first->name)];
  memset(endless, 'y', sizeof(endless));
  endless[sizeof(endless) - 1] = '\0';
  put(first, stride, capacity, 0, "good", COTUNE_CHOICE_DEFAULT);
  put(first, stride, capacity, 1, "good", 0);
  put(first, stride, capacity, 2, "Not A Name", 0);
  put(first, stride, capacity, 3, endless, 0);
  put(first, stride, capacity, 4, "future", 1u << 30);
  put(first, stride, capacity, 5, "second", COTUNE_CHOICE_DEFAULT);
  *count = 6;
#elif defined(BROKEN_LIST_TOO_LONG)
  (void)first;
  (void)stride;
  *count = capacity * 2 + 1;
#else
  put(first, stride, capacity, 0, "good", 0);
  put(first, stride, capacity, 1, "better", 0);
  *count = 2;
#endif
  return COTUNE_OK;
}
static cotune_status_t group_create(cotune_backend_t* backend, const cotune_group_params_t* params,
                                    cotune_group_t** group, cotune_error_t* error) {
  (void)backend;
  (void)params;
  (void)group;
  (void)error;
  return COTUNE_OK; /* and no group */
}
static cotune_status_t group_health(cotune_group_t* group, cotune_error_t* error) {
  (void)group;
  (void)error;
  return COTUNE_OK;
}
static void group_nothing(cotune_group_t* group) { (void)group; }
static cotune_status_t prepare(cotune_group_t* group, const cotune_problem_t* problem,
                               const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                               cotune_error_t* error) {
  (void)group;
  (void)problem;
  (void)choice_name;
  (void)deadline_ns;
  (void)plan;
  (void)error;
  return COTUNE_UNSUPPORTED;
}
static cotune_status_t launch(cotune_plan_t* plan, const cotune_launch_t* arguments,
                              cotune_error_t* error) {
  (void)plan;
  (void)arguments;
  (void)error;
  return COTUNE_UNSUPPORTED;
}
static cotune_status_t progress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  (void)plan;
  (void)until_ns;
  (void)error;
  return COTUNE_UNSUPPORTED;
}
static void plan_destroy(cotune_plan_t* plan) { (void)plan; }

#if defined(__SANITIZE_ADDRESS__)
#define OWN_FLAGS COTUNE_BUILD_ASAN
#elif defined(__SANITIZE_THREAD__)
#define OWN_FLAGS COTUNE_BUILD_TSAN
#else
#define OWN_FLAGS 0u
#endif

/* As a newer plugin would have it: with a field behind the ones that this header knows. */
typedef struct {
  cotune_backend_api_t known;
  void* from_the_future;
} larger_api_t;

static const larger_api_t api = {{
#if defined(BROKEN_SIZE_UNSET)
                                     0,
#elif defined(BROKEN_SIZE_TOO_SMALL)
                                     64,
#elif defined(LARGER_TABLE)
                                     sizeof(larger_api_t),
#else
                                     sizeof(cotune_backend_api_t),
#endif
#if defined(LARGER_TABLE)
                                     COTUNE_ABI_MINOR + 7,
#else
                                     COTUNE_ABI_MINOR,
#endif
#if defined(BROKEN_SANITIZER)
                                     OWN_FLAGS ^ COTUNE_BUILD_TSAN,
#else
                                     OWN_FLAGS,
#endif
                                     1u << COTUNE_MEMORY_HOST,
#if defined(BROKEN_NAME)
                                     "Not-A-Name",
#elif defined(BROKEN_NAME_MISSING)
                                     NULL,
#else
                                     "broken",
#endif
#if defined(BROKEN_VERSION)
                                     "",
#else
                                     "1",
#endif
                                     create, destroy, get_extension, list_choices, group_create,
                                     group_health, group_nothing, group_nothing,
#if defined(BROKEN_FUNCTION)
                                     NULL,
#else
                                     prepare,
#endif
                                     launch, progress, plan_destroy},
                                 NULL};

#if defined(BROKEN_OTHER_MAJOR)
#define QUERY cotune_backend_query_v2
#elif defined(BROKEN_SYMBOL)
#define QUERY some_other_function
#else
#define QUERY cotune_backend_query_v1
#endif

#if defined(BROKEN_CONSTRUCTOR_CRASHES)
__attribute__((constructor)) static void crash(void) { raise(SIGSEGV); }
#endif

COTUNE_EXPORT const cotune_backend_api_t* QUERY(uint32_t host_abi_minor, cotune_error_t* refusal);
COTUNE_EXPORT const cotune_backend_api_t* QUERY(uint32_t host_abi_minor, cotune_error_t* refusal) {
  (void)host_abi_minor;
  (void)refusal;
#if defined(BROKEN_UNDEFINED_SYMBOL)
  if (function_that_is_nowhere()) return NULL;
#endif
#if defined(BROKEN_QUERY_CRASHES)
  raise(SIGSEGV);
#elif defined(BROKEN_QUERY_NEVER_RETURNS)
  for (;;) sleep(UINT_MAX);
#endif
#if defined(BROKEN_QUERY_NULL)
  return NULL;
#elif defined(BROKEN_QUERY_REFUSES)
  strcpy(refusal->message, "this plugin needs a newer driver");
  return NULL;
#else
  return &api.known;
#endif
}
