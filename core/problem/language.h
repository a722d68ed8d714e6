// The table of the language of programs: dtypes, collectives, reductions and operations.
//
// Each list calls a macro X once for each entry. The enumerations, the names, the parsers and the
// checks of core come from these lists, and so do integration/python/cotune/_language.py and the
// tables of docs/programs.md (write_language.py writes both). Codes are those of the plugin ABI,
// which has its own copy by hand (plugins/api); the loader asserts that both agree. Append only.
#ifndef COTUNE_CORE_PROBLEM_LANGUAGE_H_
#define COTUNE_CORE_PROBLEM_LANGUAGE_H_

// X(enumerator, code, name, bytes of an element, kind of number). Collectives move stored dtypes as
// u8, and no operation but a cast reads or makes them.
#define COTUNE_DTYPES(X)                 \
  X(kF32, 1, "f32", 4, kFloat)           \
  X(kF64, 2, "f64", 8, kFloat)           \
  X(kF16, 3, "f16", 2, kFloat)           \
  X(kBf16, 4, "bf16", 2, kFloat)         \
  X(kI32, 5, "i32", 4, kInteger)         \
  X(kI64, 6, "i64", 8, kInteger)         \
  X(kU8, 7, "u8", 1, kInteger)           \
  X(kI8, 8, "i8", 1, kStored)            \
  /* No infinity; 448 is the largest. */ \
  X(kF8E4M3, 9, "f8_e4m3", 1, kStored)   \
  /* A half with 2 bits of mantissa. */  \
  X(kF8E5M2, 10, "f8_e5m2", 1, kStored)

// X(enumerator, code, name, whether it reduces)
#define COTUNE_COLLECTIVES(X)                  \
  X(kAllReduce, 1, "all_reduce", true)         \
  X(kAllGather, 2, "all_gather", false)        \
  X(kReduceScatter, 3, "reduce_scatter", true) \
  X(kAllToAll, 4, "all_to_all", false)         \
  X(kBroadcast, 5, "broadcast", false)

// X(enumerator, code, name)
#define COTUNE_REDUCTIONS(X) \
  X(kSum, 1, "sum")          \
  X(kProduct, 2, "product")  \
  X(kMin, 3, "min")          \
  X(kMax, 4, "max")          \
  X(kAverage, 5, "average")

// X(enumerator, code, name, operands, typing rule, what it gives). OpRule (op.h) explains the
// rules. Codes from 64 on are compounds, which ProgramGraph::Lower replaces by primitives; no
// backend sees one. Arithmetic is f32 inside (f64 for f64; integers wrap around).
#define COTUNE_OPS(X)                                                                       \
  X(kAdd, 1, "add", 2, kSameDtype, "a + b")                                                 \
  X(kSub, 2, "sub", 2, kSameDtype, "a - b")                                                 \
  X(kMul, 3, "mul", 2, kSameDtype, "a * b")                                                 \
  X(kDiv, 4, "div", 2, kSameFloat, "a / b")                                                 \
  X(kMin, 5, "min", 2, kSameDtype, "the smaller; NaN if an operand is NaN")                 \
  X(kMax, 6, "max", 2, kSameDtype, "the larger; NaN if an operand is NaN")                  \
  X(kNeg, 7, "neg", 1, kSameDtype, "-a")                                                    \
  X(kAbs, 8, "abs", 1, kSameDtype, "|a|")                                                   \
  X(kRelu, 9, "relu", 1, kSameDtype, "max(a, 0)")                                           \
  X(kGeluErf, 10, "gelu", 1, kSameFloat, "by the error function")                           \
  X(kGeluTanh, 11, "gelu_tanh", 1, kSameFloat, "by the tanh")                               \
  X(kSilu, 12, "silu", 1, kSameFloat, "a * sigmoid(a)")                                     \
  X(kTanh, 13, "tanh", 1, kSameFloat, "the hyperbolic tangent")                             \
  X(kSigmoid, 14, "sigmoid", 1, kSameFloat, "1 / (1 + exp(-a))")                            \
  X(kExp, 15, "exp", 1, kSameFloat, "e to the power of a")                                  \
  X(kLog, 16, "log", 1, kSameFloat, "the natural logarithm")                                \
  X(kSqrt, 17, "sqrt", 1, kSameFloat, "the square root")                                    \
  X(kRsqrt, 18, "rsqrt", 1, kSameFloat, "1 / sqrt(a)")                                      \
  X(kRound, 19, "round", 1, kSameFloat, "the nearest integer, ties to even")                \
  X(kClamp, 20, "clamp", 1, kSameDtype, "between low and high; NaN stays NaN")              \
  X(kLess, 21, "less", 2, kCompares, "1 if a < b, else 0")                                  \
  X(kEqual, 22, "equal", 2, kCompares, "1 if a == b, else 0")                               \
  X(kWhere, 23, "where", 3, kSelects, "a if the condition is not 0, else b")                \
  X(kCast, 24, "cast", 1, kCasts, "the value in another dtype")                             \
  X(kRowSum, 32, "row_sum", 1, kReducesRow, "the sum of a row")                             \
  X(kRowMax, 33, "row_max", 1, kReducesRow, "the largest of a row; NaN if one is NaN")      \
  X(kRowMean, 64, "row_mean", 1, kReducesRow, "the mean of a row")                          \
  X(kRowMeanSquare, 65, "row_mean_square", 1, kReducesRow, "the mean of the squares")       \
  X(kRmsNorm, 66, "rms_norm", 2, kNormalises, "a row by its root mean square, times gamma") \
  X(kLayerNorm, 67, "layer_norm", 3, kNormalises, "a row to mean 0 and variance 1")         \
  X(kSoftmax, 68, "softmax", 1, kNormalises, "over a row")                                  \
  X(kQuantizeScale, 69, "quantize_scale", 1, kScales, "max(|a|, 1e-12) / largest of `to`")  \
  X(kQuantize, 70, "quantize", 2, kQuantizes, "a / scale, rounded and clamped")

#endif  // COTUNE_CORE_PROBLEM_LANGUAGE_H_
