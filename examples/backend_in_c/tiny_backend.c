/* A cotune backend in plain C11: all_reduce of f32 by sum, over memory that the ranks of one
 * machine share; one part of programs, relu of f32; and one region, this all_reduce with relu
 * after it. Everything else is refused with a reason.
 *
 * The data goes in slabs. For each slab every rank copies its part into its own slot, waits until
 * all slots are full, and adds them up in rank order, which gives the same bits on every rank. A
 * slot is filled again only when all ranks have read it. */
#define _GNU_SOURCE
#include <cotune/cotune_backend_v1.h>
#include <cotune/cotune_program_v1.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { kSlabFloats = 16384, kRanksMax = 64 };

typedef struct {                 /* of one rank, in the shared memory; written by that rank only */
  _Atomic uint64_t filled, read; /* slabs copied into the slot, and slabs added up, so far */
  _Atomic int aborted;           /* this rank takes part no more */
  float slot[kSlabFloats];
} part_t;

struct cotune_backend_t {
  const cotune_host_t* host;
};
struct cotune_group_t {
  const cotune_host_t* host;
  int32_t rank, world_size;
  int fd;         /* of the shared memory; rank 0 keeps it open for the others */
  part_t* parts;  /* [world_size] */
  uint64_t slabs; /* complete so far: the same on every rank between operations */
  char key[280];  /* in the store: where the memory is */
};
struct cotune_plan_t {
  cotune_group_t* group;
  uint64_t count, done; /* elements, of the operation that runs */
  cotune_launch_t launch;
};
struct cotune_program_plan_t { /* a region, or a part of a program */
  cotune_plan_t sum;           /* a region's; a part has no group, as it needs no other rank */
  uint64_t count;              /* elements of each value */
  float* output;               /* the place of the running region's result */
};

static cotune_status_t fail(cotune_error_t* error, cotune_status_t status, const char* text) {
  if (error != NULL) snprintf(error->message, sizeof(error->message), "tiny: %s", text);
  return status;
}

static cotune_status_t create(const cotune_host_t* host, int32_t device, cotune_backend_t** backend,
                              cotune_error_t* error) {
  if (device >= 0) return fail(error, COTUNE_UNSUPPORTED, "it runs on no device");
  *backend = malloc(sizeof(**backend));
  if (*backend == NULL) return fail(error, COTUNE_OUT_OF_RESOURCES, "out of memory");
  (*backend)->host = host;
  return COTUNE_OK;
}
static void destroy(cotune_backend_t* backend) { free(backend); }

static const char* why_not(const cotune_problem_t* p) {
  if (p->collective != COTUNE_ALL_REDUCE || p->reduction != COTUNE_SUM)
    return "all_reduce/sum only";
  if (p->dtype.code != COTUNE_DTYPE_FLOAT || p->dtype.bits != 32) return "f32 only";
  if (p->memory_kind != COTUNE_MEMORY_HOST) return "host memory only";
  if (p->ranks_per_node != p->world_size) return "ranks of one machine only";
  if (p->world_size > kRanksMax) return "64 ranks at most";
  return (p->flags >> 16) != 0 ? "it does not know these flags" : NULL;
}

/* The only choice of collectives and regions alike. */
static cotune_status_t list_slots(cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                                  uint32_t* count) {
  cotune_choice_t slots = {.struct_size = sizeof(slots), .cost_us = -1, .name = "slots"};
  memcpy(slots.numerics, "rank_order_f32", sizeof("rank_order_f32")); /* see step */
  slots.flags = COTUNE_CHOICE_DEFAULT | COTUNE_CHOICE_REPRODUCIBLE;
  if (capacity > 0) memcpy(first, &slots, stride < sizeof(slots) ? stride : sizeof(slots));
  *count = 1;
  return COTUNE_OK;
}

static cotune_status_t list_choices(const cotune_backend_t* backend,
                                    const cotune_problem_t* problem, cotune_choice_t* first,
                                    uint32_t stride, uint32_t capacity, uint32_t* count,
                                    cotune_error_t* error) {
  (void)backend;
  if (why_not(problem) != NULL) return fail(error, COTUNE_UNSUPPORTED, why_not(problem));
  return list_slots(first, stride, capacity, count);
}

static void group_destroy(cotune_group_t* group) {
  if (group == NULL) return;
  if (group->parts != NULL) munmap(group->parts, (size_t)group->world_size * sizeof(part_t));
  if (group->fd >= 0) close(group->fd);
  if (group->rank == 0) group->host->store_delete(group->host->context, group->key);
  free(group);
}

/* Rank 0 makes the memory and says through the store where it is. It has no name of its own, so
 * nothing is left when all ranks are gone. */
static cotune_status_t attach(cotune_group_t* group, int64_t deadline_ns) {
  const cotune_host_t* host = group->host;
  const size_t bytes = (size_t)group->world_size * sizeof(part_t);
  char path[64] = "";
  uint64_t size = 0;
  cotune_status_t status = COTUNE_OK;
  if (group->rank == 0) {
    group->fd = memfd_create("cotune_tiny", MFD_CLOEXEC);
    if (group->fd < 0 || ftruncate(group->fd, (off_t)bytes) != 0) return COTUNE_OUT_OF_RESOURCES;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), group->fd);
    status = host->store_put(host->context, group->key, path, sizeof(path));
  } else {
    status = host->store_get(host->context, group->key, path, sizeof(path), &size, deadline_ns);
    if (status == COTUNE_OK) group->fd = open(path, O_RDWR | O_CLOEXEC);
  }
  if (status != COTUNE_OK) return status;
  void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, group->fd, 0);
  if (memory == MAP_FAILED) return COTUNE_OUT_OF_RESOURCES;
  group->parts = memory;
  return COTUNE_OK;
}

/* A rank that failed tells the others by the same flag. */
static void group_abort(cotune_group_t* group) {
  atomic_store(&group->parts[group->rank].aborted, 1);
}
/* The first rank that has not filled its slot with a slab yet, or not read it; -1 when all have. */
static int32_t late_rank(cotune_group_t* group, int is_reading, uint64_t slab) {
  for (int32_t rank = 0; rank < group->world_size; ++rank) {
    part_t* part = &group->parts[rank];
    if (atomic_load(is_reading ? &part->read : &part->filled) < slab) return rank;
  }
  return -1;
}

/* Gives the processor up for a moment, unless the deadline has passed. */
static cotune_status_t wait_for(cotune_group_t* group, int32_t late, int64_t deadline_ns,
                                cotune_error_t* error) {
  const struct timespec pause = {0, 20000};
  if (group->host->now_ns(group->host->context) < deadline_ns) {
    nanosleep(&pause, NULL);
    return COTUNE_OK;
  }
  group_abort(group);
  if (error != NULL) error->failed_rank = late;
  return fail(error, COTUNE_PEER_FAILED, "a rank did not come before the deadline");
}

static cotune_status_t group_create(cotune_backend_t* backend, const cotune_group_params_t* params,
                                    cotune_group_t** group, cotune_error_t* error) {
  cotune_group_t* made = calloc(1, sizeof(*made));
  if (made == NULL) return fail(error, COTUNE_OUT_OF_RESOURCES, "out of memory");
  made->host = backend->host;
  made->rank = params->rank;
  made->world_size = params->world_size;
  made->fd = -1;
  snprintf(made->key, sizeof(made->key), "%s/tiny", params->name);
  cotune_status_t status = attach(made, params->deadline_ns);
  if (status != COTUNE_OK) fail(error, status, "no shared memory from rank 0");
  if (status == COTUNE_OK) { /* the first slab, without data: the ranks meet */
    made->slabs = 1;
    atomic_store(&made->parts[made->rank].filled, 1);
    atomic_store(&made->parts[made->rank].read, 1);
  }
  for (int32_t late = 0; status == COTUNE_OK && (late = late_rank(made, 1, 1)) >= 0;) {
    status = wait_for(made, late, params->deadline_ns, error);
  }
  if (status != COTUNE_OK) {
    group_destroy(made);
    return status;
  }
  *group = made;
  return COTUNE_OK;
}

static cotune_status_t group_health(cotune_group_t* group, cotune_error_t* error) {
  for (int32_t rank = 0; rank < group->world_size; ++rank) {
    if (atomic_load(&group->parts[rank].aborted)) {
      return fail(error, COTUNE_ABORTED, "the group failed or was aborted");
    }
  }
  return COTUNE_OK;
}

static cotune_status_t prepare(cotune_group_t* group, const cotune_problem_t* problem,
                               const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                               cotune_error_t* error) {
  (void)deadline_ns;
  if (why_not(problem) != NULL) return fail(error, COTUNE_UNSUPPORTED, why_not(problem));
  if (strcmp(choice_name, "slots") != 0) return fail(error, COTUNE_UNSUPPORTED, choice_name);
  *plan = calloc(1, sizeof(**plan));
  if (*plan == NULL) return fail(error, COTUNE_OUT_OF_RESOURCES, "out of memory");
  (*plan)->group = group;
  (*plan)->count = problem->count;
  return COTUNE_OK;
}
static void plan_destroy(cotune_plan_t* plan) { free(plan); }

static cotune_status_t launch(cotune_plan_t* plan, const cotune_launch_t* launch,
                              cotune_error_t* error) {
  plan->launch = *launch;
  plan->done = 0;
  return group_health(plan->group, error);
}

/* The next step of a slab; -1 when it is done, else the rank that must come first. */
static int32_t step(cotune_plan_t* plan) {
  cotune_group_t* group = plan->group;
  part_t* own = &group->parts[group->rank];
  const uint64_t slab = group->slabs + 1, left = plan->count - plan->done;
  const uint64_t floats = left < kSlabFloats ? left : kSlabFloats;
  const int is_filled = atomic_load(&own->filled) == slab;
  const int32_t late = is_filled ? late_rank(group, 0, slab) : late_rank(group, 1, slab - 1);
  if (late >= 0) return late;
  if (!is_filled) {
    memcpy(own->slot, (const float*)plan->launch.send + plan->done, floats * sizeof(float));
    atomic_store(&own->filled, slab);
    return -1;
  }
  for (uint64_t i = 0; i < floats; ++i) {
    float sum = group->parts[0].slot[i];
    for (int32_t rank = 1; rank < group->world_size; ++rank) sum += group->parts[rank].slot[i];
    ((float*)plan->launch.recv)[plan->done + i] = sum;
  }
  atomic_store(&own->read, slab);
  group->slabs = slab;
  plan->done += floats;
  return -1;
}

static cotune_status_t progress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  cotune_group_t* group = plan->group;
  while (plan->done < plan->count) {
    cotune_status_t status = group_health(group, error);
    if (status != COTUNE_OK) return status;
    const int32_t late = step(plan);
    if (late < 0) continue;
    status = wait_for(group, late, plan->launch.deadline_ns, error);
    if (status != COTUNE_OK) return status;
    const int64_t now_ns = group->host->now_ns(group->host->context);
    if (now_ns >= until_ns && now_ns < plan->launch.deadline_ns) return COTUNE_IN_PROGRESS;
  }
  return COTUNE_OK;
}

static const cotune_value_t* value_of(const cotune_program_t* program, uint32_t index) {
  return (const cotune_value_t*)((const char*)program->values + index * program->value_stride);
}

static const cotune_node_t* node_of(const cotune_program_t* program, uint32_t index) {
  return (const cotune_node_t*)((const char*)program->nodes + index * program->node_stride);
}

/* Limits of regions and parts. relu rounds nothing, so that it does not matter whether values
 * are to be rounded. */
static const char* why_no_program(const cotune_program_t* p) {
  if (p->memory_kind != COTUNE_MEMORY_HOST) return "host memory only";
  if ((p->flags & 0xFFFF0000u & ~(uint32_t)COTUNE_PROGRAM_ROUNDS_VALUES) != 0)
    return "it does not know these flags";
  const cotune_dtype_t dtype = value_of(p, 0)->dtype;
  return dtype.code == COTUNE_DTYPE_FLOAT && dtype.bits == 32 ? NULL : "relu of f32 only";
}

static const char* why_no_part(const cotune_program_t* p) {
  if (p->input_count != 1 || p->node_count != 1 || p->nodes->kind != COTUNE_NODE_RELU)
    return "of parts relu of one value only";
  return why_no_program(p);
}

static cotune_status_t part_prepare(cotune_backend_t* backend, const cotune_program_t* program,
                                    int64_t deadline_ns, cotune_program_plan_t** plan,
                                    cotune_error_t* error) {
  (void)backend, (void)deadline_ns;
  if (why_no_part(program) != NULL) return fail(error, COTUNE_UNSUPPORTED, why_no_part(program));
  *plan = calloc(1, sizeof(**plan));
  if (*plan == NULL) return fail(error, COTUNE_OUT_OF_RESOURCES, "out of memory");
  (*plan)->count = value_of(program, 0)->rows * value_of(program, 0)->columns;
  return COTUNE_OK;
}

/* The collective of a region, as a problem of its own. */
static cotune_problem_t collective_of(const cotune_program_t* p) {
  const cotune_value_t* value = value_of(p, 0);
  cotune_problem_t problem = {.struct_size = sizeof(problem),
                              .collective = p->nodes->collective,
                              .reduction = p->nodes->reduction,
                              .memory_kind = p->memory_kind,
                              .dtype = value->dtype,
                              .count = value->rows * value->columns,
                              .world_size = p->world_size,
                              .ranks_per_node = p->ranks_per_node};
  problem.bytes = problem.count * sizeof(float);
  return problem;
}

/* Value 0 is the input, 1 its sum, 2 the relu of it. */
static const char* why_no_region(const cotune_program_t* p) {
  if (p->input_count != 1 || p->node_count != 2 || p->output_count != 1 || p->outputs[0] != 2 ||
      p->nodes->kind != COTUNE_NODE_COLLECTIVE || node_of(p, 1)->kind != COTUNE_NODE_RELU ||
      node_of(p, 1)->operands[0] != 1)
    return "of regions all_reduce with relu after it only";
  const cotune_problem_t sum = collective_of(p);
  return why_not(&sum) != NULL ? why_not(&sum) : why_no_program(p);
}

static cotune_status_t region_list_choices(const cotune_backend_t* backend,
                                           const cotune_program_t* program, cotune_choice_t* first,
                                           uint32_t stride, uint32_t capacity, uint32_t* count,
                                           cotune_error_t* error) {
  (void)backend;
  const char* reason = why_no_region(program);
  if (reason != NULL) return fail(error, COTUNE_UNSUPPORTED, reason);
  return list_slots(first, stride, capacity, count);
}

static cotune_status_t region_prepare(cotune_group_t* group, const cotune_program_t* program,
                                      const char* choice_name, int64_t deadline_ns,
                                      cotune_program_plan_t** plan, cotune_error_t* error) {
  (void)deadline_ns;
  const char* reason = why_no_region(program);
  if (reason != NULL) return fail(error, COTUNE_UNSUPPORTED, reason);
  if (strcmp(choice_name, "slots") != 0) return fail(error, COTUNE_UNSUPPORTED, choice_name);
  *plan = calloc(1, sizeof(**plan));
  if (*plan == NULL) return fail(error, COTUNE_OUT_OF_RESOURCES, "out of memory");
  (*plan)->count = collective_of(program).count;
  (*plan)->sum.group = group;
  (*plan)->sum.count = (*plan)->count;
  return COTUNE_OK;
}

/* y may be x. NaN stays NaN. */
static void relu(const float* x, float* y, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0 : x[i];
}

/* A part is done at once. A region begins its sum, which goes to where the output lies. */
static cotune_status_t program_launch(cotune_program_plan_t* plan,
                                      const cotune_program_launch_t* program,
                                      cotune_error_t* error) {
  plan->output = program->outputs[0];
  if (plan->sum.group == NULL) {
    relu(program->inputs[0], plan->output, plan->count);
    return COTUNE_OK;
  }
  const cotune_launch_t sum = {.struct_size = sizeof(sum),
                               .send = program->inputs[0],
                               .recv = plan->output,
                               .stream = program->stream,
                               .deadline_ns = program->deadline_ns};
  return launch(&plan->sum, &sum, error);
}

static cotune_status_t program_progress(cotune_program_plan_t* plan, int64_t until_ns,
                                        cotune_error_t* error) {
  if (plan->sum.group == NULL) return COTUNE_OK;
  const cotune_status_t status = progress(&plan->sum, until_ns, error);
  if (status == COTUNE_OK) relu(plan->output, plan->output, plan->count);
  return status;
}
static void program_plan_destroy(cotune_program_plan_t* plan) { free(plan); }

static const cotune_program_v1_t programs = {.struct_size = sizeof(programs),
                                             .list_choices = region_list_choices,
                                             .prepare = region_prepare,
                                             .part_prepare = part_prepare,
                                             .launch = program_launch,
                                             .progress = program_progress,
                                             .plan_destroy = program_plan_destroy};

static const void* get_extension(const cotune_backend_t* backend, const char* id) {
  (void)backend;
  return strcmp(id, COTUNE_PROGRAM_EXTENSION) == 0 ? &programs : NULL;
}

static const cotune_backend_api_t api = {sizeof(api),
                                         COTUNE_ABI_MINOR,
                                         0,
                                         1u << COTUNE_MEMORY_HOST,
                                         "tiny",
                                         "1.0",
                                         create,
                                         destroy,
                                         get_extension,
                                         list_choices,
                                         group_create,
                                         group_health,
                                         group_abort,
                                         group_destroy,
                                         prepare,
                                         launch,
                                         progress,
                                         plan_destroy};

COTUNE_EXPORT const cotune_backend_api_t* cotune_backend_query_v1(uint32_t host_abi_minor,
                                                                  cotune_error_t* refusal) {
  return (void)host_abi_minor, (void)refusal, &api;
}
