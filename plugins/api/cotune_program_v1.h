/* The extension cotune.program/1: programs, their fused regions and their local parts. Part of the
 * plugin ABI since 1.4; all rules of cotune_backend_v1.h hold.
 *
 * A minor version may append fields to the structs, bits to the flags and kinds to the nodes. A
 * backend therefore reads an entry only as far as its struct_size or stride goes, and refuses a
 * program with a node kind, a dtype or a flag from bit 16 on that it does not know.
 *
 * A program is a graph of values: inputs, collectives and local operations, outputs. The host cuts
 * the programs of its users into steps. It asks a backend for two things: to run a region, which is
 * a collective with local operations around it, as one choice (list_choices, prepare), and to run a
 * part, which is a program without a collective, on one rank alone (part_prepare). A region with
 * several collectives is a bucket: 2 to 16 all_reduces or broadcasts of one dtype, reduction and
 * root, of which none depends on another. Their sizes may differ, and each local operation belongs
 * to one of them. A backend that takes it exchanges the data of all of them at once.
 * Programs come with resolved sizes and with primitive operations only, so that a backend needs no
 * parser.
 */
#ifndef COTUNE_PLUGINS_API_COTUNE_PROGRAM_V1_H_
#define COTUNE_PLUGINS_API_COTUNE_PROGRAM_V1_H_

#include "cotune_backend_v1.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COTUNE_PROGRAM_EXTENSION "cotune.program/1"

/* Limits of what the host sends. */
enum {
  COTUNE_PROGRAM_NODES_MAX = 1024, /* after compounds were replaced */
  COTUNE_PROGRAM_INPUTS_MAX = 64,
  COTUNE_PROGRAM_OUTPUTS_MAX = 64,
  COTUNE_NODE_OPERANDS_MAX = 4
};

/* Codes of a dtype beside those of cotune_backend_v1.h, of 8 bits each; for values, and not for
 * collectives, which move such values as unsigned integers of 8 bits. Codes of DLPack. */
enum { COTUNE_DTYPE_FLOAT8_E4M3FN = 10, COTUNE_DTYPE_FLOAT8_E5M2 = 12 };

/* How the number of rows of a value follows from R, the rows of the call. */
enum { COTUNE_ROWS_ONE = 1, COTUNE_ROWS_ALL = 2, COTUNE_ROWS_SHARE = 3 };

/* cotune_value_t.flags. REPLICATED: the same on every rank. */
enum { COTUNE_VALUE_REPLICATED = 1u << 0 };

typedef struct cotune_value_t { /* contiguous, row-major */
  uint32_t struct_size;
  uint32_t flags;
  cotune_dtype_t dtype;
  uint32_t rows_kind; /* COTUNE_ROWS_* */
  uint64_t rows;      /* resolved; 0 is allowed where rows_kind is not ONE */
  uint64_t columns;
} cotune_value_t;

/* cotune_node_t.kind. Elementwise operations repeat operands of one row or one column over the
 * others. Floats are computed in f32 (f64 in f64). A value is rounded to its dtype for all of its
 * readers if it is an output of the program, or a value or an operand of a collective: also the
 * nodes of the same program that read it read the rounded value, so that the bits do not depend on
 * whether these nodes run in the same kernel. A value that leaves a region or a part is an output
 * of it, so that this is all that a backend has to know of the cut. All other values are rounded as
 * COTUNE_PROGRAM_ROUNDS_VALUES says. Integers wrap around. Less and equal give u8, 0 or 1. Casts:
 * float to float to nearest, ties to even, infinity beyond the range (NaN for e4m3fn); float to
 * integer toward zero, clamped, NaN gives 0; integer to integer wraps around. */
enum {
  COTUNE_NODE_COLLECTIVE = 0,
  COTUNE_NODE_ADD = 1,
  COTUNE_NODE_SUB = 2,
  COTUNE_NODE_MUL = 3,
  COTUNE_NODE_DIV = 4,
  COTUNE_NODE_MIN = 5,
  COTUNE_NODE_MAX = 6,
  COTUNE_NODE_NEG = 7,
  COTUNE_NODE_ABS = 8,
  COTUNE_NODE_RELU = 9,
  COTUNE_NODE_GELU_ERF = 10,
  COTUNE_NODE_GELU_TANH = 11,
  COTUNE_NODE_SILU = 12,
  COTUNE_NODE_TANH = 13,
  COTUNE_NODE_SIGMOID = 14,
  COTUNE_NODE_EXP = 15,
  COTUNE_NODE_LOG = 16,
  COTUNE_NODE_SQRT = 17,
  COTUNE_NODE_RSQRT = 18,
  COTUNE_NODE_ROUND = 19, /* to the nearest integer, ties to even */
  COTUNE_NODE_CLAMP = 20, /* constants: low, high; NaN stays NaN */
  COTUNE_NODE_LESS = 21,
  COTUNE_NODE_EQUAL = 22,
  COTUNE_NODE_WHERE = 23, /* (u8 condition, a, b) */
  COTUNE_NODE_CAST = 24,
  COTUNE_NODE_ROW_SUM = 32, /* rows x columns to rows x 1 */
  COTUNE_NODE_ROW_MAX = 33  /* NaN when an element is NaN */
};

/* An operand that is a number: one row, one column, in cotune_node_t.literals. */
enum { COTUNE_OPERAND_LITERAL = -1 };

/* Defines the next value: values are the inputs first, then one for each node, in order. */
typedef struct cotune_node_t {
  uint32_t struct_size;
  uint32_t kind;       /* COTUNE_NODE_* */
  uint32_t collective; /* COTUNE_NODE_COLLECTIVE: COTUNE_ALL_REDUCE ..., else 0 */
  uint32_t reduction;
  int32_t root;
  uint32_t operand_count;
  int32_t operands[COTUNE_NODE_OPERANDS_MAX]; /* indexes of values, or COTUNE_OPERAND_LITERAL */
  double literals[COTUNE_NODE_OPERANDS_MAX];
  double constants[2];
} cotune_node_t;

/* cotune_program_t.flags. ROUNDS_VALUES: every value is rounded to its dtype, so that the bits do
 * not depend on how a program is cut, wherever it is; a backend that cannot do so refuses the
 * region or part with a reason. Without it a value that is no output and that no collective reads
 * or gives may stay wider. SYMMETRIC: every operand of the region is registered through
 * cotune.memory/1, as COTUNE_PROBLEM_SYMMETRIC says of buffers; never of a part. */
enum { COTUNE_PROGRAM_ROUNDS_VALUES = 1u << 16, COTUNE_PROGRAM_SYMMETRIC = 1u << 17 };

/* A program at one size; equal on all ranks: no address, no rank. The host's memory; valid during
 * the call. */
typedef struct cotune_program_t {
  uint32_t struct_size;
  uint32_t flags;
  uint32_t memory_kind;
  int32_t world_size;
  int32_t ranks_per_node;
  uint32_t reserved;
  uint64_t topology_digest;
  uint64_t digest;              /* of the text; R stays open in it */
  const cotune_value_t* values; /* input_count + node_count; entry i at i * value_stride bytes */
  uint32_t value_stride;
  uint32_t input_count;
  const cotune_node_t* nodes;
  uint32_t node_stride;
  uint32_t node_count;
  const int32_t* outputs;     /* output_count indexes of values */
  const int32_t* output_into; /* the input that the output overwrites, or -1 */
  uint32_t output_count;
  uint32_t reserved2;
  const char* text; /* canonical; for logs */
} cotune_program_t;

/* Operands are named by the program: each input and each output has one address. They lie at any
 * address that fits their dtype, also at others in the next launch. An output overlaps an input
 * only if output_into names that input, and has its address then; other operands overlap only if
 * both are inputs. In a region of all_reduces that input may be what an operand of a collective is,
 * or is computed from: a backend whose peers may still read it when an output is stored refuses the
 * region or the choice. */
typedef struct cotune_program_launch_t {
  uint32_t struct_size;
  uint32_t flags;            /* 0 */
  const void* const* inputs; /* input_count addresses; NULL only for a value without rows */
  void* const* outputs;      /* output_count addresses */
  cotune_stream_t stream;
  int64_t deadline_ns;
} cotune_program_launch_t;

/* A region of a group, or a part of a backend, ready to launch. The functions of the table never
 * get one, and those of this extension never get a cotune_plan_t. */
typedef struct cotune_program_plan_t cotune_program_plan_t;

/* cotune_choice_t.flags of a region. FITS_ANY_REGION: in one call some ranks may run this choice
 * with these operations around the collective, others with other operations, and others as a choice
 * of the collective by itself, which prepare of the table takes under the same name. So the data
 * that ranks exchange and compare depends on the collective alone. The choice lacks
 * COTUNE_CHOICE_COLLECTIVE_PREPARE; on CUDA memory it has COTUNE_CHOICE_CAPTURABLE. Else the host
 * does not heed this flag. PyTorch compiles each rank's graph by itself, and runs no other choices
 * of regions. */
enum { COTUNE_CHOICE_FITS_ANY_REGION = 1u << 3 };

typedef struct cotune_program_v1_t { /* constant; lives as long as the library */
  uint32_t struct_size;
  uint32_t flags; /* 0 */

  /* [any] pure, rank-invariant: depends on the program, the backend's settings and its version
   * only. As list_choices of the table, for a program with collectives that one plan would run
   * whole. COTUNE_UNSUPPORTED with a reason refuses the region; an entry with a status and a reason
   * refuses one way to run it. The numerics class of an entry is that of its collective, because
   * the rounding rule leaves the operations around it no freedom. The host asks for many regions
   * that no backend runs, so that a refusal has to be quick. NULL, as prepare then is: the backend
   * runs single collectives only (no fusion). */
  cotune_status_t (*list_choices)(const cotune_backend_t* backend, const cotune_program_t* program,
                                  cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                                  uint32_t* count, cotune_error_t* error);
  /* [group] as prepare of the table: local unless the choice has COTUNE_CHOICE_COLLECTIVE_PREPARE,
   * and on several threads for different plans. choice_name: of the list for this program. */
  cotune_status_t (*prepare)(cotune_group_t* group, const cotune_program_t* program,
                             const char* choice_name, int64_t deadline_ns,
                             cotune_program_plan_t** plan, cotune_error_t* error);
  /* [any] a program without a collective, on this rank alone; needs no group. COTUNE_UNSUPPORTED
   * with a reason: this part cannot run here. NULL: none can. */
  cotune_status_t (*part_prepare)(cotune_backend_t* backend, const cotune_program_t* program,
                                  int64_t deadline_ns, cotune_program_plan_t** plan,
                                  cotune_error_t* error);
  /* [hot] regions: as the table's launch; the operation is one of its group, and group_abort of the
   * table frees it. Parts: one call at a time for a plan; on host memory launch may do all of the
   * work. */
  cotune_status_t (*launch)(cotune_program_plan_t* plan, const cotune_program_launch_t* launch,
                            cotune_error_t* error);
  /* [hot] as the table's progress. COTUNE_OK for a part whose launch has done the work. */
  cotune_status_t (*progress)(cotune_program_plan_t* plan, int64_t until_ns, cotune_error_t* error);
  /* [group] regions: as the table's plan_destroy, before their group is destroyed. Parts: [any],
   * before the backend is destroyed. NULL does nothing. */
  void (*plan_destroy)(cotune_program_plan_t* plan);
} cotune_program_v1_t;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* COTUNE_PLUGINS_API_COTUNE_PROGRAM_V1_H_ */
