/* The C API of cotune: groups of ranks that run collectives by a tuned table.
 *
 * C99 to C++20. Every process of a job is one rank. A group is collective: all of its ranks make
 * the same calls in the same order, cotune_explain and the queries excepted. A group is used by one
 * thread at a time, but cotune_group_abort by any; different groups are independent of each other,
 * also in one process, but ranks that are in several groups must use those in the same order.
 * Nothing is thrown, no signal handler is installed, and the environment is read only while a group
 * is created.
 *
 * A child that a process forks cannot use its parent's groups: calls fail with COTUNE_ERROR_USAGE
 * there, cotune_group_destroy does nothing, and the parent is not disturbed. The child may make
 * groups of its own (of host memory: CUDA does not work in a child of a process that has used it).
 *
 * Structs begin with struct_size, which the caller sets to sizeof; zero in any other field means
 * the default. A later version only appends fields.
 *
 * A collective, a program or a check that ends with an error other than COTUNE_ERROR_USAGE and
 * COTUNE_ERROR_UNSUPPORTED stops the group: each later call gives that same error and runs nothing.
 * Destroy it. A tune, load, save, split or memory registration stops it when the error leaves it
 * open what the other ranks have done: COTUNE_ERROR_RANK_LOST, COTUNE_ERROR_DEADLINE,
 * COTUNE_ERROR_ABORTED, and COTUNE_ERROR_INTERNAL where memory ran out or a callback threw. Every
 * group that was split from it is then stopped too, for no rank may go on by a table that others
 * may have replaced. After every other error of these calls the group can be used, with the table
 * that it had; but where a tune fails only to save its database, with the table of that tune.
 *
 * A rank that dies, or ends without cotune_group_destroy, stops every group that it is in on all of
 * their ranks, also those that wait in a call or have nothing to do with cotune just then; on CUDA
 * memory what waits on the GPU ends too. Groups without that rank go on running calls by the table
 * that they have; all that needs the other ranks' agreement (split, tune, load, save and memory)
 * gives the error, and stops them. When more ranks die after the first one, each stops its groups
 * in the same way as long as rank 0 of the job lives. After rank 0's death a call that waits for a
 * rank that dies ends when its backend notices (host memory), or at its timeout.
 *
 * A call into a backend that never returns, against the rules of the plugin ABI, holds its thread.
 * A little behind its deadline the log names it, and every other call on groups of the same job,
 * from any thread, gives COTUNE_ERROR_DEADLINE with that text at once; cotune_group_destroy then
 * leaves alone what the thread still uses, and so do cotune_memory_free and _unregister. (It waits
 * 5 s at most for a backend that is still aborting the group.) With the setting exit_when_stuck the
 * process ends instead.
 */
#ifndef COTUNE_INTEGRATION_CAPI_COTUNE_H_
#define COTUNE_INTEGRATION_CAPI_COTUNE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header; that of the library is cotune_version(). A library runs programs that were built
 * with an older header of the same major number (0: of the same minor one, too), which is also the
 * number in its name, libcotune.so.0. */
#define COTUNE_VERSION_MAJOR 0
#define COTUNE_VERSION_MINOR 1
#define COTUNE_VERSION_PATCH 0
#define COTUNE_VERSION_NUMBER \
  (COTUNE_VERSION_MAJOR * 10000 + COTUNE_VERSION_MINOR * 100 + COTUNE_VERSION_PATCH)

#if defined(__GNUC__)
#define COTUNE_API __attribute__((visibility("default")))
#else
#define COTUNE_API
#endif

/* ---- Results ---- */

typedef int32_t cotune_result;
enum {
  COTUNE_SUCCESS = 0,
  COTUNE_ERROR_INTERNAL = 1,     /* a broken invariant of cotune itself */
  COTUNE_ERROR_USAGE = 2,        /* an argument, option or setting */
  COTUNE_ERROR_ENVIRONMENT = 3,  /* the machine cannot do it: file, memory, permission, backend */
  COTUNE_ERROR_WRONG_RESULT = 4, /* a choice computed wrong values */
  COTUNE_ERROR_RANK_LOST = 5,    /* a rank died, stopped or came late */
  COTUNE_ERROR_DEADLINE = 6,     /* time ran out and no rank is known to be at fault */
  COTUNE_ERROR_DATABASE = 7,     /* a tuned database is corrupt, foreign, newer or in use */
  COTUNE_ERROR_PLUGIN = 8,       /* a plugin that was named cannot be loaded */
  COTUNE_ERROR_ABORTED = 9,
  COTUNE_ERROR_UNSUPPORTED = 10, /* no backend can run it */
  COTUNE_ERROR_INTERRUPTED = 11,
  /* The ranks differ in what decides (nodes, settings, choices): all of them hear it, and group and
   * table stay as they were. */
  COTUNE_ERROR_DISAGREEMENT = 12
};

/* The exit code that the command line would give: 0, 1 to 5, 7, 8 or 130. Any thread. */
COTUNE_API int cotune_exit_code(cotune_result result);

/* A failure as the user reads it; written only when a call that takes it fails. */
typedef struct cotune_error {
  uint32_t struct_size;
  cotune_result result;
  int32_t rank; /* first rank of the job that is at fault, -1 when none is known */
  uint32_t reserved;
  char text[1024]; /* one line, NUL-terminated: what (where): likely cause; next step */
} cotune_error;

/* ---- What is run ---- */

typedef int32_t cotune_collective;
enum {
  COTUNE_COLLECTIVE_ALL_REDUCE = 1,
  COTUNE_COLLECTIVE_ALL_GATHER = 2,
  COTUNE_COLLECTIVE_REDUCE_SCATTER = 3,
  COTUNE_COLLECTIVE_ALL_TO_ALL = 4,
  COTUNE_COLLECTIVE_BROADCAST = 5
};
typedef int32_t cotune_dtype;
enum {
  COTUNE_F32 = 1,
  COTUNE_F64 = 2,
  COTUNE_F16 = 3,
  COTUNE_BF16 = 4,
  COTUNE_I32 = 5,
  COTUNE_I64 = 6,
  COTUNE_U8 = 7,
  /* Of values in programs. Collectives of these are calls of COTUNE_U8 with the same count: they
   * are moved as bytes, and not reduced. */
  COTUNE_I8 = 8,
  COTUNE_F8_E4M3 = 9, /* without infinity */
  COTUNE_F8_E5M2 = 10
};
typedef int32_t cotune_reduction;
enum { /* 0 for collectives that do not reduce */
       COTUNE_REDUCE_SUM = 1,
       COTUNE_REDUCE_PRODUCT = 2,
       COTUNE_REDUCE_MIN = 3,
       COTUNE_REDUCE_MAX = 4,
       COTUNE_REDUCE_AVERAGE =
           5 /* integers: the sum, which wraps around, then divided toward zero */
};

/* ---- Groups ---- */

typedef struct cotune_group cotune_group;

/* The memory that the buffers of a group's calls lie in. */
typedef int32_t cotune_group_memory;
enum {
  COTUNE_GROUP_MEMORY_HOST = 0,
  /* The memory of the GPU whose context is current on the calling thread; with none, of the one
   * whose ordinal is the rank's number on its host, or of the only one that the process sees.
   * cudaSetDevice makes a context; torch.cuda.set_device only where it changes the device, and a
   * first tensor in any case. cotune_group_device tells. Every rank needs a GPU of its own. */
  COTUNE_GROUP_MEMORY_CUDA = 1
};

/* A key-value store of the caller that all ranks of a job reach (torch's TCPStore, for example),
 * through which they find rank 0 instead of by job_id and socket_path. Rank 0 puts one value of at
 * most 4 KiB under one key and deletes it when all have come; the others get it. All ranks are on
 * one host: the store carries the address, and the ranks then talk over a socket. What an attempt
 * that ended has left under the key does no harm: the ranks wait until rank 0 has put anew.
 *
 * The functions give a cotune_result, COTUNE_SUCCESS or the one that fits: get gives
 * COTUNE_ERROR_DEADLINE when nothing is under the key for timeout_ns. They throw nothing and call
 * nothing of cotune; they are called one at a time within a group, on a thread of cotune's. One
 * that does not return within 2 s after its timeout is given up: cotune_group_create fails with
 * COTUNE_ERROR_DEADLINE, and as long as the function has not returned, its code and context must
 * stay. */
typedef struct cotune_store {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  /* Replaces what is there; key is NUL-terminated, at most 400 characters. */
  int32_t (*put)(void* context, const char* key, const void* data, uint64_t size,
                 int64_t timeout_ns);
  /* Waits for the key. Writes at most capacity bytes, and the size of the whole value to *size. */
  int32_t (*get)(void* context, const char* key, void* data, uint64_t capacity, uint64_t* size,
                 int64_t timeout_ns);
  /* COTUNE_SUCCESS, too, when nothing is there. */
  int32_t (*erase)(void* context, const char* key, int64_t timeout_ns);
} cotune_store;

/* ---- Functions of the caller as choices ---- */

/* Functions of the caller that run collectives race with the choices of backends, under the same
 * rules: all ranks list them alike, their values are checked, they are timed in the same rounds,
 * and a table may choose them. Ranks that list them differently leave all of them out. Unless
 * `backends` of the group names them first, a call that is not tuned runs no function if a
 * backend can run it. COTUNE_NUMERICS_SAME leaves functions out, because nothing is known of their
 * bits. */

typedef struct cotune_function_group cotune_function_group; /* state of the caller */

/* One call of a function. */
typedef struct cotune_function_call {
  uint32_t struct_size;
  cotune_collective collective;
  cotune_dtype dtype;
  cotune_reduction reduction; /* 0 if the collective does not reduce */
  int32_t root;               /* rank of the group, broadcast only */
  int32_t rank;
  int32_t world_size;
  int32_t device;      /* CUDA ordinal; -1 on host memory */
  uint64_t count;      /* as in the table of collectives below */
  void* stream;        /* cudaStream_t; NULL on host memory */
  int64_t deadline_ns; /* the call ends by then; on the monotonic clock */
  /* Host memory: both are copies that belong to cotune, and the function may write to both; send
   * has nothing to read on a rank that is not the root of a broadcast. They are NULL only if
   * they have no elements, and calls in place have two of them. CUDA: the operands of the
   * call; the function does not write to send. */
  void* send;
  void* recv;
  /* NULL. Host memory: a function that has the result in memory of its own, or in send, sets it and
   * leaves recv as it is. The memory stays as it is until the next call of a function of this
   * group, or until the group is closed. */
  const void* result;
} cotune_function_call;

/* flags. CAPTURABLE: on CUDA memory, run only enqueues on the stream and may be captured in a
 * graph. REPRODUCIBLE: the same bits on every rank and from run to run. */
enum { COTUNE_FUNCTION_CAPTURABLE = 1u << 0, COTUNE_FUNCTION_REPRODUCIBLE = 1u << 1 };

typedef struct cotune_function {
  uint32_t struct_size;
  uint32_t flags;
  /* As the name of a choice: "algorithm" or "algorithm?key=value&key=value" of [a-z0-9_.-], another
   * one for each function. The tuned database stores it. */
  const char* name;
  uint32_t collectives; /* bit 1u << COTUNE_COLLECTIVE_* for each that it runs */
  uint32_t dtypes;      /* bit 1u << COTUNE_F32 ...; 0: all */
  uint32_t reductions;  /* bit 1u << COTUNE_REDUCE_*; 0: all */
  uint32_t reserved;
  /* Runs the call. Host memory: to its end, on a thread of cotune's, one call of a group at a time.
   * One that has not returned a little after the deadline is given up: it has failed, and may run
   * on for as long as it likes with its copies. CUDA: enqueues on the stream, on the thread of the
   * call, and does not wait. Not COTUNE_SUCCESS: it has failed; a reason of at most `size` bytes
   * with its NUL is in `reason`, which is empty before. While a tune measures, the group is closed
   * then on all ranks and made anew, and the tune goes on without the function; a call gives the
   * error and stops the group. cotune_explain has the reason, after the tune, for each size at
   * which a function was dropped; no line of the log has it. Throws nothing and calls nothing of
   * cotune.
   */
  int32_t (*run)(void* context, cotune_function_group* group, cotune_function_call* call,
                 char* reason, size_t size);
  void* context;
} cotune_function;

typedef struct cotune_function_group_info {
  uint32_t struct_size;
  int32_t rank; /* the rank of this process in the group */
  int32_t world_size;
  int32_t device;           /* CUDA ordinal; -1 on host memory */
  const int32_t* job_ranks; /* world_size entries: rank in the job of each rank of the group */
  const char* name;         /* unique in the job, a new one for each attempt */
  int64_t deadline_ns;
} cotune_function_group_info;

typedef struct cotune_functions {
  uint32_t struct_size;
  uint32_t reserved;
  /* The name under which the functions are listed, as that of a backend: "caller/ring". NULL:
   * "caller". No plugin in use has that name. */
  const char* name;
  /* The version of the functions: their times depend on it. NULL: "". With the names and fields of
   * the functions it makes the version of the backend. Ranks with different versions do not share
   * the functions, and results of another version are measured anew. */
  const char* version;
  const cotune_function* functions;
  size_t function_count;
  size_t function_stride; /* bytes from one to the next; 0: sizeof */
  /* Collective: called on all ranks when a group of ranks begins to use the functions, and again
   * after a call of them has failed while a tune measures. Both NULL if the functions need no
   * state. open may wait for the other ranks until the deadline, and returns then; a reason is as
   * for run. close is called once for each open that has succeeded, on any thread, and does not
   * wait. It ends what waits in a function of the group, which may still run on another thread, or
   * be about to begin there: a function has to give an error when it finds its group closed. So
   * close does not free what the functions look at, unless they can notice that it is gone (if
   * `group` is a key of a table of the caller's, for example). As long as a function has not
   * returned, code, context and group stay valid. Both throw nothing and call nothing of cotune. */
  int32_t (*open)(void* context, const cotune_function_group_info* info,
                  cotune_function_group** group, char* reason, size_t size);
  void (*close)(void* context, cotune_function_group* group);
  void* context;
} cotune_functions;

typedef struct cotune_group_options {
  uint32_t struct_size;
  /* Both 0: rank and world size come from the launcher's environment (cotune run, torchrun, mpirun,
   * hydra, srun); with no launcher the group has this process alone. */
  int32_t rank;
  int32_t world_size;
  cotune_group_memory memory;
  /* Equal on all ranks of a group and different for every group that is created, also for one that
   * follows another: ranks that are still leaving that one would meet the new ones. Needed with
   * rank and world_size, unless store is given. Default: the launcher's id of the job, and in each
   * process a count of the calls that asked for a group without an id, rank and world size, whether
   * they succeeded or not. All ranks make these calls in the same order, and as often: after a
   * failure on any rank, a rank that tries again meets the others when they do so too. Ranks that
   * cannot know of each other's failures give an id for each attempt. A group of one rank
   * (world_size 1) is not counted. */
  const char* job_id;
  /* The path of the control channel is equal on all ranks and, like job_id, another one for every
   * group. Default: by the job_id. */
  const char* socket_path;
  /* Folders with plugins, separated by ':'. Default: the setting plugin_path (COTUNE_PLUGIN_PATH),
   * else lib/cotune/plugins of the tree that the library is in. */
  const char* plugin_path;
  /* Names, separated by ',', in order of priority; that of `functions` counts as one, and they are
   * left out where it is not named. Default: all. */
  const char* backends;
  /* Until when all ranks must have come; default 60 s. Where it is longer than the setting
   * warm_timeout, it is also the time in which all ranks come to a tune, a load or a save, and
   * then it is equal on all of them. */
  int64_t join_timeout_ns;
  /* The time that one call may take; default 30 s. It counts from the call on host memory, and from
   * the start of the kernel for cotune's own kernels. For calls that run by NCCL it counts from the
   * moment at which they are enqueued: where the work in front of them on the stream takes longer,
   * the communicator is aborted and the group stops. */
  int64_t call_timeout_ns;
  /* Log lines; any thread, one at a time. Throws nothing and calls nothing of cotune. Where a call
   * into a plugin never returns, a line may come behind cotune_group_destroy. Default:
   * warnings and errors go to standard error. severity: 0 debug, 1 info, 2 warning, 3 error. */
  void (*log)(void* context, int32_t severity, const char* text);
  void* log_context;
  /* 1: this group and those split from it begin with the default choices, as with the setting
   * load_database off; no tuned database is looked for. On all ranks alike: one that does not want
   * it decides for all. */
  int32_t ignores_database;
  uint32_t reserved;
  /* On all ranks or on none; read while the group is created. With it job_id may be NULL, where no
   * other job uses the store (torch's PrefixStore makes one); then each group is created in the
   * same order on all ranks. socket_path counts on rank 0 only. */
  const cotune_store* store;
  /* Functions that race with the choices of the backends; read while the group is created. NULL:
   * none. Their code and contexts stay valid as long as the group and those split from it live, and
   * as long as a function has not returned. */
  const cotune_functions* functions;
  /* Choices that are forced, to find out which one gives wrong values or is slow:
   * "all_reduce=nccl/auto,all_gather=host/ring?chunk=65536". Every call of such a collective, alone
   * or in a program, of this group and those split from it, runs that choice, without a tune and
   * whatever the table has; if it is refused or not listed for a call, that call runs what it would
   * run otherwise, and one warning for each collective names the reason. A tune does not measure
   * what is forced. Equal on all ranks, or COTUNE_ERROR_DISAGREEMENT; a name that no backend in use
   * has is COTUNE_ERROR_USAGE, and so is a name with "::": it is a custom operator of PyTorch,
   * which the package cotune.torch forces. "" forces nothing; NULL: the setting force_choice
   * (COTUNE_FORCE_CHOICE), where names with "::" have no effect on a group. */
  const char* force;
  /* Settings of this group and those split from it, which count more than the environment and the
   * settings file: lines of "name=value" with the names and values of the settings file, for
   * example "collective_benchmark_nruns=20\ncollective_pre_sync_timeout=5s". Settings that
   * decide what is tuned are equal on all ranks, or a tune gives COTUNE_ERROR_DISAGREEMENT.
   * COTUNE_ERROR_USAGE for an unknown name or a value that does not fit, and for the setting
   * memory: it is the memory that `cotune tune` measures, and a group has that of `memory` above,
   * whatever COTUNE_MEMORY or the settings file has. `force` above counts more. NULL or "": none.
   */
  const char* settings;
} cotune_group_options;

/* Joins the job and makes its group of all ranks. Settings come from the settings file and COTUNE_*
 * variables as on the command line. The group begins with the tuned database where `cotune tune`
 * leaves it: the one that COTUNE_DATABASE (`cotune run --db`) or the settings file names, else this
 * machine's in $XDG_CACHE_HOME/cotune or ~/.cache/cotune; rank 0 reads it. One that is missing,
 * damaged, or of another machine is no error: every call then runs the default choice of the first
 * backend until cotune_tune or cotune_load. The log says at the first call which table is in force,
 * or why none: a warning where a database is there or named and cannot be used. Calls that the
 * table has no row for are told once, as a warning. options and error
 * may be NULL. *group is NULL on failure. Any thread; one call at a time for a job. */
COTUNE_API cotune_result cotune_group_create(const cotune_group_options* options,
                                             cotune_group** group, cotune_error* error);

/* The group of some ranks of `parent`: only those ranks call it, all with the same name, which is
 * new in the job, and the same list; ranks[i] is the rank in the parent of the subgroup's rank i.
 * It begins with what the tuned database of cotune_group_create holds for groups of its size.
 * Parent and subgroup may be destroyed in either order. error may be NULL. */
COTUNE_API cotune_result cotune_group_split(cotune_group* parent, const char* name,
                                            const int32_t* ranks, size_t rank_count,
                                            cotune_group** group, cotune_error* error);

/* Accepts NULL. Does nothing in a child that was forked after the group was made. On CUDA memory it
 * first waits until the GPU is idle, for 5 s at most: where a kernel of another library runs on, as
 * one that waits for a lost rank, the memory of the group is left to the process, and the log says
 * so. CUDA graphs with calls of the group should be destroyed before. A replay afterwards does no
 * harm, and its results are not valid: by cotune's own kernels it computes nothing, by NCCL it ends
 * with wrong data. While a graph with calls that run by NCCL lives, the log says so, and NCCL keeps
 * its memory until the graph is destroyed. */
COTUNE_API void cotune_group_destroy(cotune_group* group);

/* Gives up the job of the group, from any thread, also while another one is in a call: every group
 * of the job that this rank is in is stopped on all of its ranks, with COTUNE_ERROR_ABORTED and a
 * text that names this rank and the reason (NULL: none). Calls that wait end so, later ones begin
 * nothing. It does not wait; destroy the groups when no thread is in a call of them any more.
 * COTUNE_ERROR_USAGE for NULL and in a child that was forked after the group was made. */
COTUNE_API cotune_result cotune_group_abort(cotune_group* group, const char* reason);

/* The rank of this process in the group and the size of the group; -1 and 0 for NULL. */
COTUNE_API int32_t cotune_group_rank(const cotune_group* group);
COTUNE_API int32_t cotune_group_size(const cotune_group* group);

/* The CUDA ordinal that the group's buffers and streams belong to; -1 for host memory and NULL. */
COTUNE_API int32_t cotune_group_device(const cotune_group* group);

/* The stream (cudaStream_t or CUstream of the group's GPU) that later calls are enqueued on; NULL,
 * and before the first time, the default stream. What earlier calls of the group have enqueued on
 * another stream runs first, so that one lives until then; inside a capture order is the caller's.
 * COTUNE_ERROR_USAGE for a group of host memory. */
COTUNE_API cotune_result cotune_group_set_stream(cotune_group* group, void* stream);

/* Whether what the group has enqueued so far went well, as far as it has run: after the stream is
 * synchronized, COTUNE_SUCCESS says that the data of all its calls is right, and
 * COTUNE_ERROR_RANK_LOST, say, names the rank that a kernel has waited for in vain, or that is
 * known to be lost. Calls that run by NCCL are compared between the ranks only with the setting
 * check_calls (COTUNE_CHECK_CALLS=1); without it, ranks whose calls differ may get wrong data with
 * success. With it this call waits up to 2 s until what is complete is compared, too, and
 * COTUNE_ERROR_RANK_LOST says when calls are not compared any more, because the job has lost a rank
 * that need not be one of this group. */
COTUNE_API cotune_result cotune_group_check(cotune_group* group);

/* ---- Memory that all ranks reach ---- */

/* Calls whose buffers lie in such memory have choices of their own, which use it in place (the
 * receive buffer and, except for broadcast, the send buffer; winners after cotune_tune with
 * is_symmetric; without, below the smallest size that was tuned, and if the call is agreed
 * (cotune_program_agree), they run as others do). All ranks use such memory alike: a buffer lies at
 * the same distance from the beginning of its memory on all of them. */

/* `bytes` of new memory on the group's device; collective, the same bytes on all ranks.
 * COTUNE_ERROR_UNSUPPORTED for groups of host memory, and where no backend takes such memory. */
COTUNE_API cotune_result cotune_memory_allocate(cotune_group* group, uint64_t bytes, void** data);

/* All ranks do it in the same order. No call that uses it is on its way. If a CUDA graph lives that
 * holds a call with a buffer in it, later calls no longer know the memory, and it is freed at the
 * next cotune_memory_* call after the last such graph is destroyed. A group that is destroyed
 * before leaves it to the process. NULL is accepted. The rest is freed with the group. */
COTUNE_API cotune_result cotune_memory_free(cotune_group* group, void* data);

/* The same for memory of the caller, which stays the caller's: one mapping (cuMemMap) of memory of
 * the group's GPU that can be exported as a POSIX file descriptor, as what cotune_memory_allocate
 * gave a parent of the group. COTUNE_ERROR_UNSUPPORTED for other kinds, as that of cudaMalloc. It
 * is unregistered before it is freed. For graphs that hold calls with it the registration stays as
 * above. It ends if the memory is registered again, or if it was freed and cotune_memory_allocate
 * gets its addresses; such graphs must not be replayed any more. */
COTUNE_API cotune_result cotune_memory_register(cotune_group* group, void* data, uint64_t bytes);
COTUNE_API cotune_result cotune_memory_unregister(cotune_group* group, void* data);

/* ---- Collectives ---- */

/* On host memory a call ends with its data there; one that fails has ended, too, and nothing writes
 * to its buffers any more, unless the error states that they stay in use. On CUDA memory it is
 * enqueued and returns: it may be captured in a CUDA graph when a call of the same kind and size
 * has run before, or was explained and its choice is made ready by each rank alone; a rank that
 * does not come within the call's timeout ends the wait on the GPU and, on every rank, all calls
 * that are enqueued or captured behind it, which cotune_group_check and every later call tell.
 * Replays of captured calls that run by NCCL have no deadline: a rank whose death is known ends
 * them, and one that is only late is waited for without end. Registered buffers of a call that
 * failed may be written until every rank has destroyed its group. */

/* count elements and blocks as in NCCL:
 *                  send               receive
 *   all_reduce     count              count
 *   all_gather     count              count * size
 *   reduce_scatter count * size       count
 *   all_to_all     count * size       count * size
 *   broadcast      count, root only   count
 * In place: send == recv for all_reduce, all_to_all and broadcast; send == recv + rank * count for
 * all_gather; recv == send + rank * count for reduce_scatter: on all ranks or on none, unless the
 * call is agreed (cotune_program_agree). Buffers do not overlap otherwise. With count 0 they may be
 * NULL. */
COTUNE_API cotune_result cotune_all_reduce(cotune_group* group, const void* send, void* recv,
                                           uint64_t count, cotune_dtype dtype,
                                           cotune_reduction reduction);
COTUNE_API cotune_result cotune_all_gather(cotune_group* group, const void* send, void* recv,
                                           uint64_t count, cotune_dtype dtype);
COTUNE_API cotune_result cotune_reduce_scatter(cotune_group* group, const void* send, void* recv,
                                               uint64_t count, cotune_dtype dtype,
                                               cotune_reduction reduction);
COTUNE_API cotune_result cotune_all_to_all(cotune_group* group, const void* send, void* recv,
                                           uint64_t count, cotune_dtype dtype);
COTUNE_API cotune_result cotune_broadcast(cotune_group* group, const void* send, void* recv,
                                          uint64_t count, cotune_dtype dtype, int32_t root);

/* ---- Programs ---- */

/* A program is one collective or several with the local operations around them, as text
 * (docs/programs.md). It is called like a collective; where `cotune_tune` has measured it, the call
 * runs by what won. */
typedef struct cotune_program cotune_program;

/* Reads a program text of `length` bytes. It needs no group, so that a compiler can read one before
 * any rank runs; the program belongs to no group and no thread. *program is NULL on failure, and
 * the error names line and column. error may be NULL. Any thread. */
COTUNE_API cotune_result cotune_program_parse(const char* text, size_t length,
                                              cotune_program** program, cotune_error* error);
/* Accepts NULL. No call uses it. */
COTUNE_API void cotune_program_free(cotune_program* program);
/* Equal for programs that mean the same, whatever their values are called; 0 for NULL. */
COTUNE_API uint64_t cotune_program_digest(const cotune_program* program);
/* 0 for NULL. */
COTUNE_API size_t cotune_program_input_count(const cotune_program* program);
COTUNE_API size_t cotune_program_output_count(const cotune_program* program);

/* An operand of a call: contiguous, row-major, in the memory of the group. A value of the program
 * with rows and columns takes any sizes whose last one is the columns and whose others multiply to
 * the rows; with one column, any sizes that multiply to the rows. */
typedef struct cotune_tensor {
  uint32_t struct_size;
  cotune_dtype dtype;
  void* data;          /* NULL where it has no elements */
  uint32_t size_count; /* dimensions; 0: one element */
  uint32_t reserved;
  const int64_t* sizes; /* size_count of them */
} cotune_tensor;

/* The type of a value in a call. */
typedef struct cotune_program_value {
  uint32_t struct_size;
  cotune_dtype dtype;
  uint64_t rows;
  uint64_t columns;
  int32_t into;          /* of an output: the input that it overwrites; -1: none */
  int32_t is_replicated; /* 1: the same on every rank, if the promises of the text hold */
} cotune_program_value;

/* The types of the outputs for these inputs (data is not looked at) in a group of world_size ranks.
 * outputs[i].struct_size is set by the caller. COTUNE_ERROR_USAGE: the inputs do not fit the
 * program. error may be NULL. Any thread. */
COTUNE_API cotune_result cotune_program_infer(const cotune_program* program, int32_t world_size,
                                              const cotune_tensor* inputs, size_t input_count,
                                              cotune_program_value* outputs, size_t output_count,
                                              cotune_error* error);

/* Runs the program, on host memory to its end; on CUDA memory it is enqueued, as a collective is.
 * An output that overwrites an input (`into`) has that input's address; no output overlaps another
 * operand else. All ranks call it with the same collectives in the same order: another one on a
 * rank is an error on all. As a program is tuned as a whole, all ranks call the same one with the
 * same number of rows, unless its collectives are agreed (cotune_program_agree).
 * COTUNE_ERROR_USAGE: nothing has begun. After any other error the group has failed, the outputs
 * hold anything, and so do inputs that an output overwrites; all other inputs are as they were. */
COTUNE_API cotune_result cotune_program_run(cotune_group* group, const cotune_program* program,
                                            const cotune_tensor* inputs, size_t input_count,
                                            const cotune_tensor* outputs, size_t output_count);
/* Makes ready what that call would run, so that the call itself makes nothing and can be captured.
 * Only addresses of the operands count, not what is there: registered memory may run another
 * choice; NULL stands for memory that is not registered. All ranks make it ready in the same order.
 */
COTUNE_API cotune_result cotune_program_prepare(cotune_group* group, const cotune_program* program,
                                                const cotune_tensor* inputs, size_t input_count,
                                                const cotune_tensor* outputs, size_t output_count);

/* Agrees on a choice for each collective of the program at these numbers of rows; row_count 0: at
 * all of them. It is the first of the choices that the table in force has for the program which
 * ranks with other programs can share, or the default. A rank whose program has a choice of the
 * same name with operations inside of the collective may run that one. From now on and as long as
 * the group lives, a collective with the same dtype, reduction, root and count runs by it, whatever
 * program it stands in, so that ranks may call other programs around the same collectives. That
 * holds for every call, by itself too, and whatever its buffers are: some ranks may call the
 * collective in place and others not, and registered memory is used as plain memory is.
 * COTUNE_ERROR_UNSUPPORTED of a call in place: the choice cannot run in place, as some of
 * all_to_all cannot. Nothing has begun, and the rank can make the call with an output apart. A
 * collective that is agreed already keeps its choice. Only the program that has agreed on it at all
 * rows first replaces it, by agreeing on all rows again, and no captured graph may hold such a call
 * then. All ranks agree on the same in the same order; nothing is communicated. */
COTUNE_API cotune_result cotune_program_agree(cotune_group* group, const cotune_program* program,
                                              const uint64_t* rows, size_t row_count);
/* 1: all collectives of the program are agreed at this number of rows, in place or not; 0: one is
 * not, or the call has failed. */
COTUNE_API int32_t cotune_program_is_agreed(cotune_group* group, const cotune_program* program,
                                            uint64_t rows);
/* cotune_program_run, if all collectives of the program are agreed; otherwise *has_run is 0 and
 * nothing has begun. */
COTUNE_API cotune_result cotune_program_run_agreed(cotune_group* group,
                                                   const cotune_program* program,
                                                   const cotune_tensor* inputs, size_t input_count,
                                                   const cotune_tensor* outputs,
                                                   size_t output_count, int32_t* has_run);

/* ---- Tuning ---- */

/* One thing to tune: a program, or a collective. */
typedef struct cotune_tune_node {
  uint32_t struct_size;
  int32_t is_in_place;           /* of the collective, as in cotune_tune_options */
  const cotune_program* program; /* NULL: the collective */
  cotune_collective collective;
  cotune_dtype dtype;
  cotune_reduction reduction;
  /* As in cotune_tune_options; of a program: all its inputs and outputs lie in such memory. */
  int32_t is_symmetric;
  /* Of a program: numbers of rows (R), from 1 on; of a collective: bytes, as in
   * cotune_tune_options. NULL: those of the options. A program whose values have no R has one
   * size, and these are ignored. */
  const uint64_t* sizes;
  size_t size_count;
} cotune_tune_node;

/* Whether the bits of results may depend on what is chosen. */
typedef int32_t cotune_numerics;
enum {
  COTUNE_NUMERICS_DEFAULT = 0, /* that of the last tune that gave the group a table; before it, the
                                * setting numerics */
  COTUNE_NUMERICS_ANY = 1,
  /* Only choices of one numerics class run: those that add up in the order of ranks, where there
   * are any, and those that only move data. Programs round every value to its dtype. Winners of a
   * tune by another rule do not count: what the group has tuned or loaded by ANY is dropped, and
   * the database is searched for results by SAME alone. */
  COTUNE_NUMERICS_SAME = 2
};

typedef struct cotune_tune_options {
  uint32_t struct_size;
  uint32_t collectives;        /* bit 1u << COTUNE_COLLECTIVE_* for each; 0: all five */
  uint32_t dtypes;             /* bit 1u << COTUNE_F32 ...; 0: f32 */
  cotune_reduction reduction;  /* 0: sum */
  const uint64_t* sizes_bytes; /* NULL: those of the setting collective_multi_kernel_hints,
                                * which are 1 KiB to 4 MiB, each 4 times the one before, if
                                * it is not set. Sizes without an element for every rank, such as
                                * 0, are left out with a warning: such calls move nothing. If
                                * none is left, COTUNE_ERROR_USAGE. */
  size_t size_count;
  int64_t budget_ns; /* measuring stops when it is used up; 0: the setting */
  /* Cells that it holds are not measured again; new ones are added. NULL: nothing is read or
   * written. "": the one that cotune_group_create looks for; where it cannot be used, a warning
   * says so and the tune goes on without it. Only rank 0 touches the file. While another tune
   * writes to it, this one measures what it does not hold, and waits for up to 10 s when it has
   * something to save. */
  const char* database_path;
  int32_t is_in_place;  /* 0 or 1: which of the two is tuned; calls in place have winners of their
                         * own, those of a broadcast excepted */
  int32_t is_symmetric; /* 0 or 1: for buffers in memory that all ranks have registered */
  /* Instead of collectives, dtypes, reduction, is_in_place and is_symmetric, which are 0 then:
   * node_count nodes, each node_stride bytes behind the one before (0: sizeof). Equal on all ranks,
   * in the same order. They are tuned together, after one meeting of the ranks. */
  const cotune_tune_node* nodes;
  size_t node_count;
  size_t node_stride;
  cotune_numerics numerics; /* equal on all ranks; calls of the group follow it from then on */
  /* Called on the calling thread before each cell is measured, and in a cell that takes long about
   * four times a second: its number among the cells of the
   * tune, from 1, how many these are, and what it is ("all_reduce sum f32, 1024 bytes", "program
   * tp_linear, 64 rows"). 0: go on. Any other answer, of one rank or more, ends the tune on all of
   * them, before the next sample of this cell, with COTUNE_ERROR_INTERRUPTED: the table stays, and
   * what was measured is kept for the next tune that names the same database. If another tune was
   * writing to the database when this one began, nothing is kept; the error names it. Throws
   * nothing and calls nothing of cotune. NULL: no calls. */
  int32_t (*progress)(void* context, int32_t cell, int32_t cells, const char* what);
  void* progress_context;
  /* 0 or 1: only those choices of a program race that can run while other ranks have other programs
   * around the same collectives: no buckets, no splits, and no choices of regions without the flag
   * COTUNE_CHOICE_FITS_ANY_REGION. cotune_program_agree can then keep the winner. */
  int32_t only_agreeable;
  uint32_t reserved;
} cotune_tune_options;

typedef struct cotune_tune_report {
  uint32_t struct_size;
  int32_t measured; /* cells: problem x size */
  int32_t known;    /* taken from the database */
  int32_t
      skipped; /* not measured: the budget was used up, or the setting force_choice decides them */
  int32_t is_tuned; /* 0: a rank missed the pre-sync window; every rank keeps the table it had */
} cotune_tune_report;

/* Measures on all ranks, agrees, and runs calls by the result from then on; what was tuned or
 * loaded before stays for other collectives and sizes. options and report may be NULL. On CUDA
 * memory it waits for the group's stream first, and graphs that hold calls of the group are
 * captured anew afterwards. COTUNE_ERROR_ENVIRONMENT when no choice ran at any size. Where only the
 * save of the database fails, the call gives that error, and calls run by the result all the same.
 * Options that are wrong on one rank are an error on all. */
COTUNE_API cotune_result cotune_tune(cotune_group* group, const cotune_tune_options* options,
                                     cotune_tune_report* report);

/* Runs calls by the entries of a tuned database that are valid for this group on this machine, and
 * were tuned by the numerics that the group follows;
 * NULL: the one that cotune_group_create looks for. Rank 0 reads it. The other ranks take it when
 * they list the same choices and can run its winners. COTUNE_ERROR_DATABASE when it cannot be used,
 * COTUNE_ERROR_DISAGREEMENT with the choice and the ranks that differ; the table stays as it was.
 */
COTUNE_API cotune_result cotune_load(cotune_group* group, const char* database_path);

/* Adds what this group has tuned or loaded to a tuned database, which is made when it is missing.
 * Rank 0 writes it. */
COTUNE_API cotune_result cotune_save(cotune_group* group, const char* database_path);

/* ---- Looking in ---- */

typedef struct cotune_call {
  uint32_t struct_size;
  cotune_collective collective;
  cotune_dtype dtype;
  cotune_reduction reduction; /* 0 where the collective does not reduce */
  int32_t root;
  int32_t is_in_place; /* 0 or 1 */
  uint64_t count;
} cotune_call;

/* Explains as lines of text what this call runs and why. Writes at most `size` bytes, NUL included,
 * and the length of the whole text to *length. buffer may be NULL when size is 0, length may be
 * NULL. Not collective. After cotune_load only rank 0 knows why a choice won. For each measured
 * size there is a line for each choice that was dropped because it failed or was wrong. */
COTUNE_API cotune_result cotune_explain(cotune_group* group, const cotune_call* call, char* buffer,
                                        size_t size, size_t* length);

/* The same for the call of a program at `rows` rows (R; 1 where the program has none). */
COTUNE_API cotune_result cotune_explain_program(cotune_group* group, const cotune_program* program,
                                                uint64_t rows, char* buffer, size_t size,
                                                size_t* length);

/* The same as one JSON object. Members are added without a new name, and never removed. These are:
 * - subject, class, world_size, bytes: the call. bytes are as nccl-tests count them; those of a
 *   program are those of its first collective.
 * - rows, program: R and canonical text of a program, else null.
 * - choice: the choice that runs.
 * - is_agreed: true if the call runs this choice only because the ranks have agreed on it
 *   (cotune_program_agree); source is "table" then, and measured has at most the size of the call.
 * - forced_refused: the reason for which a collective of the call does not run the choice that the
 *   setting force_choice gives it; "" if each of them does, and if none is forced.
 * - source: "table", "default", "forced" (the setting force_choice gives the call its choice; of a
 * program, a step has that choice, and measured is empty), or, if the choice of the table does not
 * run the call for the reason in `refused`, "next_best", the next fastest choice of the nearest
 * measured size that can, or "default_after_refusal". The reasons: its backend refuses the call, no
 * backend offers the choice, or the choice is not listed for a call of this size and a next best
 * choice is.
 * - relative: null, or the calls by whose row this one runs, because such calls were not measured:
 *   "all_reduce sum f32 out of place". measured and the sizes are theirs.
 * - first_bytes, end_bytes: the sizes that the row of the table is for, from first_bytes to below
 *   end_bytes. null: no table, no end.
 * - smallest_measured_bytes, largest_measured_bytes: what was measured for such calls. A size
 *   beyond has the choice of the nearest one.
 * - measured: on a rank that knows, for each measured size of the row bytes, winner, time_us, why,
 *   unsteady, not_raced, choices [{choice, outcome, is_default, numerics, time_us, warm_time_us,
 *   wrong, reason}], and refusals [{choice, reason}]. time_us: null for a choice that failed or was
 *   wrong, and so has no time. warm_time_us: with buffers in the cache, of choices that tied; else
 *   null. unsteady: true if the times do not show the fastest choice; why has the cause. not_raced:
 *   the backends of this group that the measurement lacks. The next tune measures a size again if
 *   it is unsteady or a backend is in not_raced.
 */
COTUNE_API cotune_result cotune_explain_json(cotune_group* group, const cotune_call* call,
                                             char* buffer, size_t size, size_t* length);
COTUNE_API cotune_result cotune_explain_program_json(cotune_group* group,
                                                     const cotune_program* program, uint64_t rows,
                                                     char* buffer, size_t size, size_t* length);

/* The table that calls run by: a digest of its rows, equal on all ranks (0: no table), and how
 * often this group has got one. -1 for NULL. */
COTUNE_API uint64_t cotune_table_digest(const cotune_group* group);
COTUNE_API int64_t cotune_table_generation(const cotune_group* group);

/* Text and result of the last call on this group that failed; "" and COTUNE_SUCCESS before. Valid
 * until the next call on the group. */
COTUNE_API const char* cotune_last_error(const cotune_group* group);
COTUNE_API cotune_result cotune_last_result(const cotune_group* group);

/* "0.1.0". Any thread. */
COTUNE_API const char* cotune_version(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* COTUNE_INTEGRATION_CAPI_COTUNE_H_ */
