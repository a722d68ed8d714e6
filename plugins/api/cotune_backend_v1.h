/* cotune backend ABI, major version 1.
 *
 * A backend is a shared library that runs collectives. It exports exactly one symbol,
 * cotune_backend_query_v1, which returns a constant table of functions. This header is all a plugin
 * needs: plain C99, no other cotune header.
 *
 * Rules that hold everywhere:
 *
 * - Versions. The major version is in the symbol name. A minor version only appends fields; every
 *   struct that is passed on its own starts with struct_size, and a reader uses a field only where
 *   COTUNE_HAS_FIELD says it is there. A writer zero-fills what it does not know. Unknown
 *   enumeration values are answered with COTUNE_UNSUPPORTED. Unknown flag bits 0..15 may be
 *   ignored; an unknown bit 16..31 must be answered with COTUNE_UNSUPPORTED.
 *
 * - Threads. [setup]: one thread, before or after all other use. [any]: any thread, concurrently.
 *   [group]: one call at a time for a group (the host serialises). [hot]: as [group], and it
 *   neither allocates, logs, nor waits for the device. [abort]: any thread, at the same time as
 *   every other call on the group; bounded time; idempotent.
 *
 * - Ownership. The host owns every struct that it passes; a plugin reads it during the call and
 *   copies what it keeps. A plugin owns its opaque handles and frees them in the matching destroy.
 *   Nothing is allocated on one side and freed on the other. Outputs are written only when a call
 *   succeeds. destroy accepts NULL.
 *
 * - Errors. A status is returned; the reason is written into the caller's cotune_error_t (which may
 *   be NULL) by the first function that knows it. COTUNE_UNSUPPORTED is an answer, not a failure.
 *   No exception, signal handler, atexit or environment write crosses this border.
 *
 * - Deadlines. Absolute, in nanoseconds, on the clock of cotune_host_t.now_ns. A call that waits
 *   returns by then. An operation of a plan on host memory ends by COTUNE_LATEST_END_NS, a little
 *   later: a backend that asks the other ranks who is late may use that time to name the rank.
 *
 * - Ranks. list_choices is pure and rank-invariant: its answer depends on its arguments, the
 *   backend's settings and the plugin's version only, so that every rank lists the same choices in
 *   the same order. What depends on the machine enters through cotune_problem_t.topology_digest,
 *   which the ranks have agreed on. Calls tagged [group] that are collective are made by every rank
 *   of the group in the same order.
 *
 * - Unloading. A plugin is never unloaded.
 */
#ifndef COTUNE_PLUGINS_API_COTUNE_BACKEND_V1_H_
#define COTUNE_PLUGINS_API_COTUNE_BACKEND_V1_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Minor version of this header; appended fields are marked "since 1.n". See CHANGELOG.md beside
 * this file. */
#define COTUNE_ABI_MAJOR 1u
#define COTUNE_ABI_MINOR 4u
#define COTUNE_BACKEND_QUERY_SYMBOL "cotune_backend_query_v1"

/* True where *ptr is new enough to have the field. */
#define COTUNE_HAS_FIELD(type, ptr, field) \
  ((ptr)->struct_size >= offsetof(type, field) + sizeof((ptr)->field))

/* An operation on host memory ends within this time after the deadline, in progress: with
 * COTUNE_OK or an error. An eighth of the time that it was launched with, 0.5 s at most, is for
 * finding the rank that is late; the rest is for reporting it. */
#define COTUNE_VERDICT_SHARE 8
#define COTUNE_VERDICT_NS_MAX INT64_C(500000000)
#define COTUNE_LAST_TURN_NS INT64_C(100000000)
/* By when it has ended. The deadline is later than the launch and not INT64_MAX, which has no end;
 * the arguments are evaluated more than once. The host aborts the group when this moment has
 * passed. */
#define COTUNE_LATEST_END_NS(launched_ns, deadline_ns)                             \
  ((deadline_ns) + COTUNE_LAST_TURN_NS +                                           \
   (((deadline_ns) - (launched_ns)) / COTUNE_VERDICT_SHARE < COTUNE_VERDICT_NS_MAX \
        ? ((deadline_ns) - (launched_ns)) / COTUNE_VERDICT_SHARE                   \
        : COTUNE_VERDICT_NS_MAX))
/* An operation in flight ends within this time after group_abort, in progress. */
#define COTUNE_ABORT_END_NS INT64_C(1000000000)

#if defined(__GNUC__)
#define COTUNE_EXPORT __attribute__((visibility("default")))
#else
#define COTUNE_EXPORT
#endif

/* ---- Status ---- */

typedef int32_t cotune_status_t; /* 0 done, > 0 not an error, < 0 an error */
enum {
  COTUNE_OK = 0,
  COTUNE_IN_PROGRESS = 1,
  COTUNE_INVALID_ARGUMENT = -1,
  COTUNE_UNSUPPORTED = -2,
  COTUNE_OUT_OF_RESOURCES = -3,
  COTUNE_DEADLINE_EXCEEDED = -4, /* no peer is known to be at fault */
  COTUNE_ABORTED = -5,           /* group_abort was called here or by a peer */
  COTUNE_PEER_FAILED = -6,       /* cotune_error_t.failed_rank died, stopped or came late */
  COTUNE_INTERNAL = -7
};

typedef struct cotune_error_t {
  uint32_t struct_size;
  int32_t native_code; /* ncclResult_t, cudaError_t, ucs_status_t, errno; 0 when there is none */
  int32_t failed_rank; /* rank in the group that is at fault, -1 when unknown */
  uint32_t reserved;
  char message[240]; /* NUL-terminated, one line */
} cotune_error_t;

/* ---- The problem ---- */

/* clang-format off */
/* count follows NCCL's convention; bytes is nccl-tests', the larger of one rank's send and receive
 * buffer:
 *
 *   collective      send elements        receive elements     bytes
 *   ALL_REDUCE      count                count                count * size
 *   ALL_GATHER      count                count * world_size   count * world_size * size
 *   REDUCE_SCATTER  count * world_size   count                count * world_size * size
 *   ALL_TO_ALL      count * world_size   count * world_size   count * world_size * size
 *   BROADCAST       count (root only)    count                count * size
 *
 * size is that of one element. Blocks are ordered by rank. In place means: ALL_REDUCE, ALL_TO_ALL
 * and BROADCAST send == recv; ALL_GATHER send == recv + rank * count; REDUCE_SCATTER recv == send +
 * rank * count. Buffers otherwise do not overlap. For BROADCAST the send pointer of a rank that is
 * not the root is ignored. */
/* clang-format on */
enum {
  COTUNE_ALL_REDUCE = 1,
  COTUNE_ALL_GATHER = 2,
  COTUNE_REDUCE_SCATTER = 3,
  COTUNE_ALL_TO_ALL = 4,
  COTUNE_BROADCAST = 5
};
/* NONE for collectives that do not reduce. AVERAGE: the sum, then divided by world_size; integers
 * truncate toward zero. */
enum {
  COTUNE_REDUCTION_NONE = 0,
  COTUNE_SUM = 1,
  COTUNE_PRODUCT = 2,
  COTUNE_MIN = 3,
  COTUNE_MAX = 4,
  COTUNE_AVERAGE = 5
};
enum { COTUNE_MEMORY_HOST = 1, COTUNE_MEMORY_CUDA = 2 };
/* Codes of DLPack's DLDataTypeCode. */
enum {
  COTUNE_DTYPE_INT = 0,
  COTUNE_DTYPE_UINT = 1,
  COTUNE_DTYPE_FLOAT = 2,
  COTUNE_DTYPE_BFLOAT = 4
};
typedef struct cotune_dtype_t {
  uint8_t code;   /* COTUNE_DTYPE_* */
  uint8_t bits;   /* of one element */
  uint16_t lanes; /* 1 */
} cotune_dtype_t;

/* cotune_problem_t.flags. SYMMETRIC: every rank has registered its receive buffer and, except for
 * BROADCAST, its send buffer through cotune.memory/1; each lies at the same distance from the
 * beginning of its registered memory on all ranks. */
enum { COTUNE_PROBLEM_IN_PLACE = 1u << 0, COTUNE_PROBLEM_SYMMETRIC = 1u << 16 };

typedef struct cotune_problem_t { /* equal on all ranks: no pointer, no rank */
  uint32_t struct_size;
  uint32_t collective;
  uint32_t reduction;
  uint32_t memory_kind;
  cotune_dtype_t dtype;
  uint32_t flags;
  uint64_t count;         /* elements, see the table above; 0 is allowed */
  uint64_t bytes;         /* see the table above */
  int32_t world_size;     /* ranks of the group */
  int32_t ranks_per_node; /* ranks of the group on each host, 0 when they differ */
  int32_t root;           /* rank in the group, BROADCAST only, else 0 */
  uint32_t reserved;
  uint64_t topology_digest;
  /* Since 1.2. In prepare: of the program that the call is a step of; 0: a call by itself. A
   * backend that compares the calls of ranks compares it, too, because two programs may have equal
   * collectives. list_choices gets 0, and nothing else depends on it. */
  uint64_t program_digest;
} cotune_problem_t;

/* ---- Choices ---- */

/* cotune_choice_t.flags.
 * DEFAULT: what the backend would pick itself; exactly one of a list that is not empty.
 * CAPTURABLE: launch can be captured in a CUDA graph.
 * REPRODUCIBLE: the same bits on every rank and from run to run.
 * COLLECTIVE_PREPARE: every rank must call prepare, in the same order. */
enum {
  COTUNE_CHOICE_DEFAULT = 1u << 0,
  COTUNE_CHOICE_CAPTURABLE = 1u << 1,
  COTUNE_CHOICE_REPRODUCIBLE = 1u << 2,
  COTUNE_CHOICE_COLLECTIVE_PREPARE = 1u << 16
};

typedef struct cotune_choice_t { /* one way to run a problem, or why that way is refused */
  uint32_t struct_size;
  uint32_t flags;
  int32_t status; /* COTUNE_OK: can run. COTUNE_UNSUPPORTED: refused, see reason */
  uint32_t reserved;
  double cost_us;           /* model estimate, < 0: none. Decides which choices race first */
  uint64_t workspace_bytes; /* memory that prepare takes on each rank */
  /* "algorithm" or "algorithm?key=value&key=value": [a-z0-9_.-] in each part, unique in the list,
   * stable between versions of the plugin: it is what tuned databases store. */
  char name[96];
  char reason[144]; /* refused: one line that says why; else empty */
  /* Since 1.2. The numerics class: what decides the bits of the results. Two choices of one class
   * give equal bits for equal problems and data, whatever their other parameters; payloads of NaNs
   * do not count.
   *   "exact"           data is only moved, or the result does not depend on the order in which
   *                     elements are combined: integers, and minima and maxima that also order -0
   *                     below +0.
   *   "rank_order_f32"  elements are combined in the order of ranks, in f32 (f64 in f64), and
   *                     rounded to their type once, at the end.
   * Any other text is a class of the backend's own, such as "tree"; a parameter that changes the
   * order of additions is part of it: "ring.4096". [a-z0-9_.], at most 31 characters. Empty, or a
   * struct_size that ends before it: unknown, a class that no other choice is in. */
  char numerics[32];
} cotune_choice_t;

/* ---- Running ---- */

enum { COTUNE_STREAM_HOST = 1, COTUNE_STREAM_CUDA = 2 };
typedef struct cotune_stream_t {
  uint32_t kind;  /* COTUNE_STREAM_* */
  int32_t device; /* CUDA ordinal, -1 for host */
  void* handle;   /* cudaStream_t; NULL for host */
} cotune_stream_t;

typedef struct cotune_launch_t {
  uint32_t struct_size;
  uint32_t flags; /* 0 */
  const void* send;
  void* recv;
  cotune_stream_t stream;
  int64_t deadline_ns; /* of the whole operation; then progress or group_health says what failed */
} cotune_launch_t;

typedef struct cotune_backend_t cotune_backend_t; /* one per process and device */
typedef struct cotune_group_t cotune_group_t;     /* ordered ranks that can run collectives */
typedef struct cotune_plan_t cotune_plan_t;       /* group + problem + choice, ready to launch */

typedef struct cotune_group_params_t {
  uint32_t struct_size;
  uint32_t flags; /* 0 */
  /* Unique in the job, new for every attempt; the prefix of all store keys
   * of the group. */
  const char* name;
  int32_t rank;       /* of this process in the group */
  int32_t world_size; /* ranks in the group */
  /* world_size entries: rank in the job of each rank of the group; for messages. */
  const int32_t* job_ranks;
  int32_t device; /* CUDA ordinal, -1 for host */
  uint32_t reserved;
  int64_t deadline_ns;
  /* Since 1.2. world_size entries: the host of each rank of the group, numbered from 0 in the order
   * in which ranks are first on them. NULL, or a struct_size that ends before it: all are on one
   * host. A backend whose ranks must share a host gives COTUNE_UNSUPPORTED for several, with a
   * reason. */
  const int32_t* host_of_rank;
} cotune_group_params_t;

/* Services that the host lends; they outlive the backend. Every function is [any] and takes context
 * first. */
typedef struct cotune_host_t {
  uint32_t struct_size;
  uint32_t flags; /* 0 */
  void* context;
  /* severity: 0 debug, 1 info, 2 warning, 3 error. One line, no newline; the host puts the name of
   * the backend in front. */
  void (*log)(void* context, int32_t severity, const char* text);
  /* Monotonic, comparable between processes of one machine. */
  int64_t (*now_ns)(void* context);
  /* A small store shared by all ranks of the job: key <= 255 characters, value <= 65536 bytes. put
   * replaces. get waits for the key until the deadline; *size receives the value's size,
   * COTUNE_INVALID_ARGUMENT when capacity is too small. COTUNE_PEER_FAILED when a rank of the job
   * was lost meanwhile. */
  cotune_status_t (*store_put)(void* context, const char* key, const void* data, uint64_t size);
  cotune_status_t (*store_get)(void* context, const char* key, void* data, uint64_t capacity,
                               uint64_t* size, int64_t deadline_ns);
  cotune_status_t (*store_delete)(void* context, const char* key);
  /* The user's setting of this backend, by its key alone: "slot_bytes" where the user wrote
   * "NAME.slot_bytes". Equal on all ranks; NULL when not set. Lives as long as the host. Ask for
   * all of them in create: a setting that the user gave and create did not ask for is refused as
   * unknown. */
  const char* (*setting)(void* context, const char* key);
} cotune_host_t;

/* cotune_backend_api_t.build_flags. Host and plugin must agree on ASAN and TSAN; compilers do not
 * tell a program about UBSAN, which needs no agreement. */
enum { COTUNE_BUILD_ASAN = 1u << 0, COTUNE_BUILD_TSAN = 1u << 1, COTUNE_BUILD_UBSAN = 1u << 2 };

typedef struct cotune_backend_api_t { /* constant; lives as long as the library */
  uint32_t struct_size;
  uint32_t abi_minor;
  uint32_t build_flags;
  uint32_t memory_kinds; /* bit (1 << COTUNE_MEMORY_*) for each kind that can be used */
  const char* name;      /* [a-z][a-z0-9_]*, at most 31 characters: first part of every choice id */
  const char* version;   /* of the plugin; ranks with different versions do not tune together */

  /* [setup] COTUNE_UNSUPPORTED: nothing can run on this machine; the message says why. device: CUDA
   * ordinal or -1. */
  cotune_status_t (*create)(const cotune_host_t* host, int32_t device, cotune_backend_t** backend,
                            cotune_error_t* error);
  /* [setup] */
  void (*destroy)(cotune_backend_t* backend);
  /* [any] NULL for an id that is not known. */
  const void* (*get_extension)(const cotune_backend_t* backend, const char* id);

  /* [any] pure, rank-invariant. Writes min(capacity, *count) entries, entry i at (char*)first + i *
   * stride, and the number that exist to *count. A problem that the backend cannot run at all gives
   * COTUNE_UNSUPPORTED and a reason. */
  cotune_status_t (*list_choices)(const cotune_backend_t* backend, const cotune_problem_t* problem,
                                  cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                                  uint32_t* count, cotune_error_t* error);

  /* [group] collective: all ranks of the group call it. */
  cotune_status_t (*group_create)(cotune_backend_t* backend, const cotune_group_params_t* params,
                                  cotune_group_t** group, cotune_error_t* error);
  /* [any] COTUNE_OK, or the failure that made the group unusable. */
  cotune_status_t (*group_health)(cotune_group_t* group, cotune_error_t* error);
  /* [abort] frees every waiter, on host and device; afterwards each call gives COTUNE_ABORTED until
   * group_destroy. An operation on host memory that is in flight still ends by progress: it gives
   * an error within COTUNE_ABORT_END_NS, and before that the buffers may be written. */
  void (*group_abort)(cotune_group_t* group);
  /* [group] not collective; all plans of the group are destroyed before. */
  void (*group_destroy)(cotune_group_t* group);

  /* [group] local unless the choice has COTUNE_CHOICE_COLLECTIVE_PREPARE; may run on several
   * threads for different plans of a group. */
  cotune_status_t (*prepare)(cotune_group_t* group, const cotune_problem_t* problem,
                             const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                             cotune_error_t* error);
  /* [hot] starts the collective. CUDA: enqueues on the stream, done when the stream is; failures by
   * group_health. Host: the buffers are in use until progress returns COTUNE_OK or an error, or the
   * plan is destroyed; nothing of the backend, on any rank, writes to them afterwards, also when a
   * peer that was stopped goes on. One operation of a group at a time. */
  cotune_status_t (*launch)(cotune_plan_t* plan, const cotune_launch_t* launch,
                            cotune_error_t* error);
  /* [hot] host plans: advances the operation. Returns COTUNE_OK when it is complete,
   * COTUNE_IN_PROGRESS when until_ns has passed first (0: just one attempt), an error when it
   * failed; the group is unusable then. May wait, with the processor given up, until until_ns.
   * COTUNE_OK or an error by COTUNE_LATEST_END_NS, and COTUNE_OK only for right results: data that
   * a peer may have changed after its own call has failed is none. */
  cotune_status_t (*progress)(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error);
  /* [group] an operation in flight ends: the group is aborted, and the buffers are free. */
  void (*plan_destroy)(cotune_plan_t* plan);
} cotune_backend_api_t;

/* ---- Extensions, by get_extension ---- */

/* "cotune.memory/1", since 1.1: memory of the caller that a group's ranks reach on each other, so
 * that choices for SYMMETRIC problems use it where it lies. On CUDA the host allocates it on the
 * group's device as one mapping (cuMemMap) of one allocation that can be exported as a POSIX file
 * descriptor; a backend may refuse other kinds. The host registers it again in a group that is made
 * anew, and may free it as soon as it has unregistered it on this rank. */
#define COTUNE_MEMORY_EXTENSION "cotune.memory/1"
typedef struct cotune_memory_v1_t { /* constant; lives as long as the library */
  uint32_t struct_size;
  uint32_t flags; /* 0 */

  /* [group] collective: all ranks call it with the same number of bytes. Succeeds on all ranks or
   * on none. COTUNE_UNSUPPORTED: memory of this kind cannot be registered, the group stays as it
   * was. Memory that overlaps registered memory is refused. */
  cotune_status_t (*memory_register)(cotune_group_t* group, void* data, uint64_t bytes,
                                     int64_t deadline_ns, cotune_error_t* error);
  /* [group] each rank calls it by itself, at a time of its own; it does not wait for the others. No
   * launch of this rank that uses the memory is on its way, or captured in a graph that lives.
   * data: where registered memory begins; else nothing happens. group_destroy unregisters what is
   * left. */
  void (*memory_unregister)(cotune_group_t* group, void* data);
} cotune_memory_v1_t;

/* "cotune.connections/1", since 1.3: how the ranks of a group reach each other, for backends that
 * find the way at run time. A tune keeps it with its results, which count only if the texts are the
 * same: over another network another choice may win. */
#define COTUNE_CONNECTIONS_EXTENSION "cotune.connections/1"
typedef struct cotune_connections_v1_t { /* constant; lives as long as the library */
  uint32_t struct_size;
  uint32_t flags; /* 0 */

  /* [group] local, at any time after group_create. Writes how this rank sends to `peer`, another
   * rank of the group, for example "tcp/eth0": a C string, cut to `capacity` bytes with its end;
   * "": not known. Equal ways have equal texts, in every run. */
  cotune_status_t (*connection_text)(cotune_group_t* group, int32_t peer, char* text,
                                     uint32_t capacity, cotune_error_t* error);
} cotune_connections_v1_t;

/* "cotune.libraries/1", since 1.3: the libraries found at run time that do a backend's work. What a
 * tune measured counts only where this text is the same, and a backend with different texts on two
 * ranks is left out on all. */
#define COTUNE_LIBRARIES_EXTENSION "cotune.libraries/1"
typedef struct cotune_libraries_v1_t { /* constant; lives as long as the library */
  uint32_t struct_size;
  uint32_t flags; /* 0 */

  /* [any] the same as long as the backend lives; asked once, behind create. Writes names and
   * versions, for example "NCCL 2.28.9": a C string of printable characters, cut to `capacity`
   * bytes with its end. A backend whose text fills them, or that cannot say which versions it uses,
   * is refused. */
  cotune_status_t (*libraries_text)(const cotune_backend_t* backend, char* text, uint32_t capacity,
                                    cotune_error_t* error);
} cotune_libraries_v1_t;

/* The exported symbol. host_abi_minor: newest minor version that the host knows. NULL: refused, the
 * reason is in *refusal. A plugin need not refuse a host that is older or newer than itself. */
typedef const cotune_backend_api_t* (*cotune_backend_query_fn)(uint32_t host_abi_minor,
                                                               cotune_error_t* refusal);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* COTUNE_PLUGINS_API_COTUNE_BACKEND_V1_H_ */
