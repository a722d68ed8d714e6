/* The C API from a C99 program: one process, every kind of call once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integration/capi/cotune.h"

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                       \
    }                                                                 \
  } while (0)

static int logged = 0;

static void Log(void* context, int32_t severity, const char* text) {
  (void)severity;
  (void)text;
  ++*(int*)context;
}

static int CheckCalls(cotune_group* group) {
  const int32_t send[3] = {7, -8, 9};
  int32_t recv[3] = {0, 0, 0};
  CHECK(cotune_all_reduce(group, send, recv, 3, COTUNE_I32, COTUNE_REDUCE_MAX) == COTUNE_SUCCESS);
  CHECK(memcmp(send, recv, sizeof(send)) == 0);
  memset(recv, 0, sizeof(recv));
  CHECK(cotune_all_gather(group, send, recv, 3, COTUNE_I32) == COTUNE_SUCCESS);
  CHECK(memcmp(send, recv, sizeof(send)) == 0);
  memset(recv, 0, sizeof(recv));
  CHECK(cotune_reduce_scatter(group, send, recv, 3, COTUNE_I32, COTUNE_REDUCE_SUM) ==
        COTUNE_SUCCESS);
  CHECK(memcmp(send, recv, sizeof(send)) == 0);
  memset(recv, 0, sizeof(recv));
  CHECK(cotune_all_to_all(group, send, recv, 3, COTUNE_I32) == COTUNE_SUCCESS);
  CHECK(memcmp(send, recv, sizeof(send)) == 0);
  memset(recv, 0, sizeof(recv));
  CHECK(cotune_broadcast(group, send, recv, 3, COTUNE_I32, 0) == COTUNE_SUCCESS);
  CHECK(memcmp(send, recv, sizeof(send)) == 0);
  CHECK(cotune_last_result(group) == COTUNE_SUCCESS);
  CHECK(strcmp(cotune_last_error(group), "") == 0);
  CHECK(cotune_broadcast(group, send, recv, 3, COTUNE_I32, 1) == COTUNE_ERROR_USAGE);
  CHECK(cotune_last_result(group) == COTUNE_ERROR_USAGE);
  CHECK(strstr(cotune_last_error(group), "root") != NULL);
  return 0;
}

static int CheckExplanation(cotune_group* group) {
  cotune_call call;
  char text[512];
  char start[8];
  size_t length = 0;
  memset(&call, 0, sizeof(call));
  call.struct_size = sizeof(call);
  call.collective = COTUNE_COLLECTIVE_ALL_REDUCE;
  call.dtype = COTUNE_F32;
  call.reduction = COTUNE_REDUCE_SUM;
  call.count = 100;
  CHECK(cotune_explain(group, &call, NULL, 0, &length) == COTUNE_SUCCESS);
  CHECK(length > sizeof(start) && length < sizeof(text));
  CHECK(cotune_explain(group, &call, text, sizeof(text), NULL) == COTUNE_SUCCESS);
  CHECK(strlen(text) == length);
  CHECK(strncmp(text, "all_reduce of 100 elements of type f32 on 1 rank runs host/", 59) == 0);
  CHECK(cotune_explain(group, &call, start, sizeof(start), &length) == COTUNE_SUCCESS);
  CHECK(strncmp(start, text, 7) == 0 && start[7] == '\0');
  return 0;
}

int main(void) {
  cotune_group_options options;
  cotune_error error;
  cotune_group* group = NULL;
  const char* folder = getenv("TEST_TMPDIR");
  char missing[1024];
  memset(&options, 0, sizeof(options));
  memset(&error, 0, sizeof(error));
  CHECK(folder != NULL);
  char version[32];
  snprintf(version, sizeof(version), "%d.%d.%d", COTUNE_VERSION_MAJOR, COTUNE_VERSION_MINOR,
           COTUNE_VERSION_PATCH);
  CHECK(strcmp(cotune_version(), version) == 0);
  CHECK(COTUNE_VERSION_NUMBER ==
        10000 * COTUNE_VERSION_MAJOR + 100 * COTUNE_VERSION_MINOR + COTUNE_VERSION_PATCH);
  CHECK(cotune_exit_code(COTUNE_ERROR_INTERRUPTED) == 130);
  CHECK(cotune_exit_code(COTUNE_ERROR_DEADLINE) == 5);
  options.struct_size = sizeof(options);
  options.world_size = 1;
  options.log = Log;
  options.log_context = &logged;
  options.plugin_path = getenv("COTUNE_TEST_PLUGINS");
  error.struct_size = sizeof(error);
  snprintf(missing, sizeof(missing), "%s/missing", folder);
  {
    const char* plugins = options.plugin_path;
    options.plugin_path = missing;
    CHECK(cotune_group_create(&options, &group, &error) == COTUNE_ERROR_ENVIRONMENT);
    CHECK(group == NULL && error.result == COTUNE_ERROR_ENVIRONMENT && error.rank == -1);
    CHECK(strstr(error.text, "no backend can be used") != NULL);
    options.plugin_path = plugins;
  }
  if (cotune_group_create(&options, &group, &error) != COTUNE_SUCCESS) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  CHECK(cotune_group_rank(group) == 0 && cotune_group_size(group) == 1);
  if (CheckCalls(group) != 0 || CheckExplanation(group) != 0) return 1;
  CHECK(cotune_load(group, missing) == COTUNE_ERROR_ENVIRONMENT);
  cotune_group_destroy(group);
  return 0;
}
