"""The structs of cotune.h, field by field; structs_test.py compares them with the header."""

import ctypes
import enum

_INT32, _UINT32 = ctypes.c_int32, ctypes.c_uint32
_INT64, _UINT64 = ctypes.c_int64, ctypes.c_uint64
_TEXT, _POINTER, _SIZE = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t

# Arguments with data are addresses, because ctypes would copy a char* up to its first zero byte.
LOG_FUNCTION = ctypes.CFUNCTYPE(None, _POINTER, _INT32, _TEXT)
PROGRESS_FUNCTION = ctypes.CFUNCTYPE(_INT32, _POINTER, _INT32, _INT32, _TEXT)
STORE_PUT_FUNCTION = ctypes.CFUNCTYPE(_INT32, _POINTER, _TEXT, _POINTER, _UINT64, _INT64)
STORE_GET_FUNCTION = ctypes.CFUNCTYPE(
    _INT32, _POINTER, _TEXT, _POINTER, _UINT64, ctypes.POINTER(_UINT64), _INT64
)
STORE_ERASE_FUNCTION = ctypes.CFUNCTYPE(_INT32, _POINTER, _TEXT, _INT64)


class Struct(ctypes.Structure):
    """A struct whose struct_size is set when it is made."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Error(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("result", _INT32),
        ("rank", _INT32),
        ("reserved", _UINT32),
        ("text", ctypes.c_char * 1024),
    ]


class Store(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("reserved", _UINT32),
        ("context", _POINTER),
        ("put", STORE_PUT_FUNCTION),
        ("get", STORE_GET_FUNCTION),
        ("erase", STORE_ERASE_FUNCTION),
    ]


class FunctionCall(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("collective", _INT32),
        ("dtype", _INT32),
        ("reduction", _INT32),
        ("root", _INT32),
        ("rank", _INT32),
        ("world_size", _INT32),
        ("device", _INT32),
        ("count", _UINT64),
        ("stream", _POINTER),
        ("deadline_ns", _INT64),
        ("send", _POINTER),
        ("recv", _POINTER),
        ("result", _POINTER),
    ]


class FunctionGroupInfo(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("rank", _INT32),
        ("world_size", _INT32),
        ("device", _INT32),
        ("job_ranks", ctypes.POINTER(_INT32)),
        ("name", _TEXT),
        ("deadline_ns", _INT64),
    ]



class FunctionFlag(enum.IntFlag):
    CAPTURABLE = 1
    REPRODUCIBLE = 2


# The state of a group is an address in these, as c_void_p, and None for NULL.
FUNCTION_RUN = ctypes.CFUNCTYPE(
    _INT32, _POINTER, _POINTER, ctypes.POINTER(FunctionCall), _POINTER, _SIZE
)
FUNCTIONS_OPEN = ctypes.CFUNCTYPE(
    _INT32,
    _POINTER,
    ctypes.POINTER(FunctionGroupInfo),
    ctypes.POINTER(_POINTER),
    _POINTER,
    _SIZE,
)
FUNCTIONS_CLOSE = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)


class Function(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("flags", _UINT32),
        ("name", _TEXT),
        ("collectives", _UINT32),
        ("dtypes", _UINT32),
        ("reductions", _UINT32),
        ("reserved", _UINT32),
        ("run", FUNCTION_RUN),
        ("context", _POINTER),
    ]


class Functions(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("reserved", _UINT32),
        ("name", _TEXT),
        ("version", _TEXT),
        ("functions", ctypes.POINTER(Function)),
        ("function_count", _SIZE),
        ("function_stride", _SIZE),
        ("open", FUNCTIONS_OPEN),
        ("close", FUNCTIONS_CLOSE),
        ("context", _POINTER),
    ]


class GroupOptions(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("rank", _INT32),
        ("world_size", _INT32),
        ("memory", _INT32),
        ("job_id", _TEXT),
        ("socket_path", _TEXT),
        ("plugin_path", _TEXT),
        ("backends", _TEXT),
        ("join_timeout_ns", _INT64),
        ("call_timeout_ns", _INT64),
        ("log", LOG_FUNCTION),
        ("log_context", _POINTER),
        ("ignores_database", _INT32),
        ("reserved", _UINT32),
        ("store", ctypes.POINTER(Store)),
        ("functions", ctypes.POINTER(Functions)),
        ("force", _TEXT),
        ("settings", _TEXT),
    ]


class Tensor(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("dtype", _INT32),
        ("data", _POINTER),
        ("size_count", _UINT32),
        ("reserved", _UINT32),
        ("sizes", ctypes.POINTER(_INT64)),
    ]


class ProgramValue(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("dtype", _INT32),
        ("rows", _UINT64),
        ("columns", _UINT64),
        ("into", _INT32),
        ("is_replicated", _INT32),
    ]


class TuneNode(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("is_in_place", _INT32),
        ("program", _POINTER),
        ("collective", _INT32),
        ("dtype", _INT32),
        ("reduction", _INT32),
        ("is_symmetric", _INT32),
        ("sizes", ctypes.POINTER(_UINT64)),
        ("size_count", _SIZE),
    ]


class TuneOptions(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("collectives", _UINT32),
        ("dtypes", _UINT32),
        ("reduction", _INT32),
        ("sizes_bytes", ctypes.POINTER(_UINT64)),
        ("size_count", _SIZE),
        ("budget_ns", _INT64),
        ("database_path", _TEXT),
        ("is_in_place", _INT32),
        ("is_symmetric", _INT32),
        ("nodes", ctypes.POINTER(TuneNode)),
        ("node_count", _SIZE),
        ("node_stride", _SIZE),
        ("numerics", _INT32),
        ("progress", PROGRESS_FUNCTION),
        ("progress_context", _POINTER),
        ("only_agreeable", _INT32),
        ("reserved", _UINT32),
    ]


class TuneReport(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("measured", _INT32),
        ("known", _INT32),
        ("skipped", _INT32),
        ("is_tuned", _INT32),
    ]


class Call(Struct):
    _fields_ = [
        ("struct_size", _UINT32),
        ("collective", _INT32),
        ("dtype", _INT32),
        ("reduction", _INT32),
        ("root", _INT32),
        ("is_in_place", _INT32),
        ("count", _UINT64),
    ]


# All structs by their names in cotune.h.
STRUCTS: dict[str, type[Struct]] = {
    "cotune_error": Error,
    "cotune_store": Store,
    "cotune_function_call": FunctionCall,
    "cotune_function": Function,
    "cotune_function_group_info": FunctionGroupInfo,
    "cotune_functions": Functions,
    "cotune_group_options": GroupOptions,
    "cotune_tensor": Tensor,
    "cotune_program_value": ProgramValue,
    "cotune_tune_node": TuneNode,
    "cotune_tune_options": TuneOptions,
    "cotune_tune_report": TuneReport,
    "cotune_call": Call,
}
