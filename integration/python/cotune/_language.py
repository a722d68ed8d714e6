"""The table of the language of programs, written by core/problem/print_language.cc from language.h."""

# Name: code, bytes of an element, kind of number.
DTYPES = {
    "f32": (1, 4, "float"),
    "f64": (2, 8, "float"),
    "f16": (3, 2, "float"),
    "bf16": (4, 2, "float"),
    "i32": (5, 4, "integer"),
    "i64": (6, 8, "integer"),
    "u8": (7, 1, "integer"),
    "i8": (8, 1, "stored"),
    "f8_e4m3": (9, 1, "stored"),
    "f8_e5m2": (10, 1, "stored"),
}
# Name: code, whether it reduces.
COLLECTIVES = {
    "all_reduce": (1, True),
    "all_gather": (2, False),
    "reduce_scatter": (3, True),
    "all_to_all": (4, False),
    "broadcast": (5, False),
}
# Name: code.
REDUCTIONS = {
    "sum": 1,
    "product": 2,
    "min": 3,
    "max": 4,
    "average": 5,
}
# Name: operands, typing rule (OpRule in core/problem/op.h).
OPERATIONS = {
    "add": (2, "same_dtype"),
    "sub": (2, "same_dtype"),
    "mul": (2, "same_dtype"),
    "div": (2, "same_float"),
    "min": (2, "same_dtype"),
    "max": (2, "same_dtype"),
    "neg": (1, "same_dtype"),
    "abs": (1, "same_dtype"),
    "relu": (1, "same_dtype"),
    "gelu": (1, "same_float"),
    "gelu_tanh": (1, "same_float"),
    "silu": (1, "same_float"),
    "tanh": (1, "same_float"),
    "sigmoid": (1, "same_float"),
    "exp": (1, "same_float"),
    "log": (1, "same_float"),
    "sqrt": (1, "same_float"),
    "rsqrt": (1, "same_float"),
    "round": (1, "same_float"),
    "clamp": (1, "same_dtype"),
    "less": (2, "compares"),
    "equal": (2, "compares"),
    "where": (3, "selects"),
    "cast": (1, "casts"),
    "row_sum": (1, "reduces_row"),
    "row_max": (1, "reduces_row"),
    "row_mean": (1, "reduces_row"),
    "row_mean_square": (1, "reduces_row"),
    "rms_norm": (2, "normalises"),
    "layer_norm": (3, "normalises"),
    "softmax": (1, "normalises"),
    "quantize_scale": (1, "scales"),
    "quantize": (2, "quantizes"),
}
