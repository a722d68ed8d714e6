"""libcotune_torch: the library that defines cotune's operators for PyTorch, and its C functions."""

from __future__ import annotations

import ctypes
import functools
import pathlib

import torch

from cotune import _native, _structs
from cotune.errors import MachineError
from cotune.torch import compat

LIBRARY_NAME = "libcotune_torch.so"

_INT32, _INT64, _UINT32 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32
_TEXT, _POINTER = ctypes.c_char_p, ctypes.c_void_p

TUNE_BEGINS, TUNE_MEASURES, TUNE_HAS_ENDED = 1, 2, 3


class GroupOptions(_structs.Struct):
    """cotune_torch_group_options."""

    _fields_ = [
        ("struct_size", _UINT32),
        ("is_untuned", _INT32),
        ("budget_ns", _INT64),
        ("numerics", _INT32),
        ("reserved", _UINT32),
        ("database_path", _TEXT),
        ("later_budget_ns", _INT64),
    ]


class Tune(ctypes.Structure):
    """cotune_torch_tune."""

    _fields_ = [
        ("struct_size", _UINT32),
        ("phase", _INT32),
        ("group_name", _TEXT),
        ("manifest", _TEXT),
        ("group", _POINTER),
        ("result", _INT32),
        ("reserved", _UINT32),
        ("error", _TEXT),
        ("report", _structs.TuneReport),
        ("cell", _INT32),
        ("cells", _INT32),
        ("what", _TEXT),
    ]


RESOLVER = ctypes.CFUNCTYPE(_INT32, _POINTER, _TEXT, _INT32, ctypes.POINTER(_structs.Error))
LISTENER = ctypes.CFUNCTYPE(_INT32, _POINTER, ctypes.POINTER(Tune))

PROTOTYPES = {
    "cotune_torch_group_register": (
        _INT32,
        [_TEXT, _INT32, _POINTER, ctypes.POINTER(GroupOptions)],
    ),
    "cotune_torch_group_unregister": (None, [_TEXT]),
    "cotune_torch_group_is_plain": (_INT32, [_TEXT, _INT32]),
    "cotune_torch_group_decide": (
        _INT32,
        [_TEXT, _INT32, _TEXT, _TEXT, ctypes.c_uint64, ctypes.POINTER(_structs.Error)],
    ),
    "cotune_torch_group_is_agreed": (_INT32, [_TEXT, _INT32, _TEXT, ctypes.c_uint64]),
    "cotune_torch_group_admit": (
        None,
        [
            _TEXT, _INT32, _TEXT, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint32), ctypes.c_size_t,
            ctypes.c_uint64,
        ],
    ),
    "cotune_torch_group_count": (ctypes.c_uint64, [_TEXT, _INT32, ctypes.c_uint32, ctypes.c_uint64]),
    "cotune_torch_interrupt_on_return": (_INT32, [_POINTER]),
    "cotune_torch_set_meets": (None, [_INT32]),
    "cotune_torch_set_resolver": (None, [RESOLVER, _POINTER]),
    "cotune_torch_set_listener": (None, [LISTENER, _POINTER]),
}


def library_path() -> pathlib.Path:
    """Returns the path of the library, which is in the folder of libcotune. Raises MachineError if the file is missing."""
    path = _native.library_path().parent / LIBRARY_NAME
    if path.is_file():
        return path
    raise MachineError(
        f"{LIBRARY_NAME} is not there ({path}): cotune was built on a machine without PyTorch; "
        "install a wheel that `./dev wheel DIR` made after `./dev setup --torch`"
    )


def _check_functions(path: pathlib.Path) -> None:
    """Raises MachineError for a library that lacks a function of PROTOTYPES.

    The file is read, because opening it defines the operators, and a process cannot define them again in Python.
    """
    content = path.read_bytes()
    if not content.startswith(b"\x7fELF"):
        return  # the loader reports such a file
    for name in PROTOTYPES:
        if b"\0" + name.encode() + b"\0" not in content:
            raise _native.lacks(path, name)


@functools.cache
def load() -> ctypes.CDLL:
    """Defines the operators torch.ops.cotune.*, once a process, and returns the library's functions.

    Raises MachineError when the library is missing, or does not fit this PyTorch or this package.
    """
    compat.check_version()
    _native.library()
    path = library_path()
    try:
        _check_functions(path)
        torch.ops.load_library(str(path))
        loaded = ctypes.CDLL(str(path))
    except OSError as failure:
        raise MachineError(
            f"{LIBRARY_NAME} cannot be loaded ({path}): {failure}; it needs PyTorch 2.11 or newer, "
            f"and this is {torch.__version__}"
        ) from failure
    _native.bind(loaded, path, PROTOTYPES)
    return loaded


def interrupt_on_return() -> None:
    """Makes the operator that runs on this thread raise SIGINT for Python when it returns: the handler runs where it was called."""
    load().cotune_torch_interrupt_on_return(ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, _POINTER))


@functools.cache
def is_there() -> bool:
    """Returns true if the library can be loaded."""
    try:
        load()
    except (MachineError, compat.Unsupported):
        return False
    return True
