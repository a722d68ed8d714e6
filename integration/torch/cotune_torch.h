/* What libcotune_torch.so offers beside its operators: which group a name stands for, and what is
 * told of a tune. Python (cotune.torch) uses it, and so does a program in C++ that runs a compiled
 * model without Python.
 *
 * The operators are registered with PyTorch when the library is opened:
 *   cotune::program(Tensor[] inputs, Tensor(a!)[] outputs, str program, str group_name,
 *                   str manifest) -> ()
 *   cotune::all_reduce(Tensor x, str reduce_op, str group_name) -> Tensor
 *   cotune::all_gather(Tensor x, int world_size, str group_name) -> Tensor
 *   cotune::reduce_scatter(Tensor x, str reduce_op, int world_size, str group_name) -> Tensor
 *   cotune::all_to_all(Tensor x, str group_name) -> Tensor
 *   cotune::broadcast(Tensor x, int root, str group_name) -> Tensor
 * `program` is a text of docs/programs.md. `manifest` is "", or lists the programs that are tuned
 * together: "rows 8,32: PROGRAM | any rows 4,16: PROGRAM" gives each program's numbers of rows (1
 * where it has no R) before its text, and "any", or "chosen", if it is called with other numbers,
 * too; a first part "graph DIGEST" is not read. Operands are contiguous. On CUDA an operator
 * enqueues on PyTorch's current stream. `inputs` may hold one tensor more than the program
 * declares, which is not read: it orders the operators of a compiled graph.
 *
 * In a process whose ranks may compile other graphs than each other (cotune_torch_set_meets), a
 * program is given to the operator cotune::program_undecided, which Python defines, until calls of
 * its size are admitted (cotune_torch_group_admit): there the ranks meet, and Python runs the
 * program by agreed collectives (cotune_program_agree) with the manifest "agreed".
 * Otherwise the manifest is tuned before the operator runs for the first time with it on that
 * group, on all ranks together, and a group whose ranks find out in a tune that they differ in what
 * they compiled becomes plain on all of them. The programs of a plain group run step by step by
 * PyTorch's own collectives (cotune::program_plain, which Python defines), as they do if a group
 * could not be made. All functions may be called by any thread, but not from a listener. */
#ifndef COTUNE_INTEGRATION_TORCH_COTUNE_TORCH_H_
#define COTUNE_INTEGRATION_TORCH_COTUNE_TORCH_H_

#include "integration/capi/cotune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cotune_torch_group_options {
  uint32_t struct_size;
  int32_t is_untuned;       /* 1: manifests are not tuned; calls run by the table that there is */
  int64_t budget_ns;        /* as in cotune_tune_options; equal on all ranks, as all of these */
  cotune_numerics numerics; /* as in cotune_tune_options */
  uint32_t reserved;
  const char* database_path; /* as in cotune_tune_options; copied */
  int64_t later_budget_ns;   /* the budget of each tune after the first one of the group */
} cotune_torch_group_options;

/* From now on `name` stands for this group where operands lie on `device` (-1: the host, else the
 * CUDA ordinal). The group stays the caller's; NULL: the name is plain. options may be NULL.
 * Replaces what the name stood for there. COTUNE_ERROR_USAGE without a name, and where the memory
 * of the group is not that of the device. */
COTUNE_API cotune_result cotune_torch_group_register(const char* name, int32_t device,
                                                     cotune_group* group,
                                                     const cotune_torch_group_options* options);

/* The name stands for nothing any more, on any device. Returns when no operator uses its groups; it
 * is called before cotune_group_destroy. A name that stands for nothing is no error. */
COTUNE_API void cotune_torch_group_unregister(const char* name);

/* 1: the name is plain there; 0: it stands for a group; -1: for nothing. */
COTUNE_API int32_t cotune_torch_group_is_plain(const char* name, int32_t device);

/* From now on programs run by agreed collectives only, and a name that stands for nothing is given
 * to cotune::program_undecided, too. 0: the manifest of a graph is tuned at its first run. */
COTUNE_API void cotune_torch_set_meets(int32_t meets);

/* Tunes the programs of the manifest ("" for none) together, unless the group is untuned, agrees on
 * their collectives in the order of the manifest, and then on those of `program` at so many rows.
 * All ranks of the group call it together with the same arguments. A tune that has failed in a way
 * that leaves the group as it was is no error here. COTUNE_ERROR_USAGE if the name stands for no
 * group there. */
COTUNE_API cotune_result cotune_torch_group_decide(const char* name, int32_t device,
                                                   const char* manifest, const char* program,
                                                   uint64_t rows, cotune_error* error);

/* 1: all collectives of the program are agreed at so many rows; 0: not, or no group is there. */
COTUNE_API int32_t cotune_torch_group_is_agreed(const char* name, int32_t device,
                                                const char* program, uint64_t rows);

/* From now on calls of the program run by its agreed collectives without
 * cotune::program_undecided if their inputs together have first_elements to last_elements elements.
 * Each such call adds one to each of `counters`, of which one may occur several times; a call that
 * would find one of them at `limit` adds nothing and is given to cotune::program_undecided.
 * cotune_torch_group_decide ends this for calls with counters. A name that stands for no group
 * there is no error. Any rank by itself; the group may forget it. */
COTUNE_API void cotune_torch_group_admit(const char* name, int32_t device, const char* program,
                                         uint64_t first_elements, uint64_t last_elements,
                                         const uint32_t* counters, size_t counter_count,
                                         uint64_t limit);

/* Adds `calls` to a counter of the group, which begins with 0. Returns the sum; 0 if the name
 * stands for no group there. */
COTUNE_API uint64_t cotune_torch_group_count(const char* name, int32_t device, uint32_t counter,
                                             uint64_t calls);

/* Called when an operator runs for a name that stands for nothing on its device, on the operator's
 * thread, one call at a time for a name and device: it registers the name and gives COTUNE_SUCCESS,
 * or writes an error, which the operator then raises. resolve NULL: there is none any more. */
typedef cotune_result (*cotune_torch_resolver)(void* context, const char* name, int32_t device,
                                               cotune_error* error);
COTUNE_API void cotune_torch_set_resolver(cotune_torch_resolver resolve, void* context);

typedef int32_t cotune_torch_tune_phase;
enum {
  COTUNE_TORCH_TUNE_BEGINS = 1,
  COTUNE_TORCH_TUNE_MEASURES = 2, /* one cell */
  COTUNE_TORCH_TUNE_HAS_ENDED = 3
};

/* One tune of a manifest, as its listener sees it. Texts are valid during the call. */
typedef struct cotune_torch_tune {
  uint32_t struct_size;
  cotune_torch_tune_phase phase;
  const char* group_name;
  const char* manifest;
  cotune_group* group; /* may be explained; not tuned or destroyed */
  /* When it has ended: COTUNE_SUCCESS; COTUNE_ERROR_DISAGREEMENT: the group is plain from now on;
   * COTUNE_ERROR_UNSUPPORTED: nothing was measured, because a CUDA graph is being captured;
   * COTUNE_ERROR_ENVIRONMENT, _USAGE, _UNSUPPORTED: calls run by the table that there was;
   * COTUNE_ERROR_INTERRUPTED: likewise, because a listener has ended the tune;
   * COTUNE_ERROR_DATABASE: likewise, and the group tunes no other manifest. The operator raises
   * all others. */
  cotune_result result;
  uint32_t reserved;
  const char* error; /* "" on success */
  cotune_tune_report report;
  /* When it measures: as `progress` of cotune_tune_options is given them. */
  int32_t cell;
  int32_t cells;
  const char* what;
} cotune_torch_tune;

/* Called on the thread of the operator, before, during and after each tune; it throws nothing.
 * When it measures, any answer but 0 ends the tune on all ranks, as that of `progress` of
 * cotune_tune_options does; other answers say nothing. listen NULL: nobody listens. */
typedef int32_t (*cotune_torch_listener)(void* context, const cotune_torch_tune* tune);
COTUNE_API void cotune_torch_set_listener(cotune_torch_listener listen, void* context);

/* For a resolver, a listener, or an operator in Python that an operator of this library calls: the
 * operator that this thread is in calls `interrupt` as it returns, once, also if it fails. Python
 * gives PyErr_SetInterrupt, so that a Ctrl-C that came meanwhile is raised where the operator was
 * called. 0: this thread is in no operator, and nothing is called. */
typedef void (*cotune_torch_interrupt)(void);
COTUNE_API int32_t cotune_torch_interrupt_on_return(cotune_torch_interrupt interrupt);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* COTUNE_INTEGRATION_TORCH_COTUNE_TORCH_H_ */
