"""Finds and loads libcotune.so.0, and sets the prototypes of its functions."""

import ctypes
import functools
import os
import pathlib
import re

from cotune import _structs
from cotune.errors import MachineError

# The version of cotune.h (COTUNE_VERSION_*) for which this package was written.
VERSION = (0, 1, 0)
LIBRARY_NAME = "libcotune.so.0"

_INT32, _INT64, _UINT64, _SIZE = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t
_TEXT, _POINTER = ctypes.c_char_p, ctypes.c_void_p


def _to(kind: type) -> type:
    return ctypes.POINTER(kind)


_MOVE = [_POINTER, _POINTER, _POINTER, _UINT64, _INT32]
_OPERANDS = [_to(_structs.Tensor), _SIZE, _to(_structs.Tensor), _SIZE]
_TEXT_OUT = [_POINTER, _SIZE, _to(_SIZE)]
# The type of the result and of the arguments of each function, by its name. Groups and programs are addresses.
PROTOTYPES: dict[str, tuple[type | None, list[type]]] = {
    "cotune_exit_code": (ctypes.c_int, [_INT32]),
    "cotune_group_create": (
        _INT32,
        [_to(_structs.GroupOptions), _to(_POINTER), _to(_structs.Error)],
    ),
    "cotune_group_split": (
        _INT32,
        [_POINTER, _TEXT, _to(_INT32), _SIZE, _to(_POINTER), _to(_structs.Error)],
    ),
    "cotune_group_destroy": (None, [_POINTER]),
    "cotune_group_abort": (_INT32, [_POINTER, _TEXT]),
    "cotune_group_rank": (_INT32, [_POINTER]),
    "cotune_group_size": (_INT32, [_POINTER]),
    "cotune_group_device": (_INT32, [_POINTER]),
    "cotune_group_set_stream": (_INT32, [_POINTER, _POINTER]),
    "cotune_group_check": (_INT32, [_POINTER]),
    "cotune_memory_allocate": (_INT32, [_POINTER, _UINT64, _to(_POINTER)]),
    "cotune_memory_free": (_INT32, [_POINTER, _POINTER]),
    "cotune_memory_register": (_INT32, [_POINTER, _POINTER, _UINT64]),
    "cotune_memory_unregister": (_INT32, [_POINTER, _POINTER]),
    "cotune_all_reduce": (_INT32, [*_MOVE, _INT32]),
    "cotune_all_gather": (_INT32, _MOVE),
    "cotune_reduce_scatter": (_INT32, [*_MOVE, _INT32]),
    "cotune_all_to_all": (_INT32, _MOVE),
    "cotune_broadcast": (_INT32, [*_MOVE, _INT32]),
    "cotune_program_parse": (_INT32, [_TEXT, _SIZE, _to(_POINTER), _to(_structs.Error)]),
    "cotune_program_free": (None, [_POINTER]),
    "cotune_program_digest": (_UINT64, [_POINTER]),
    "cotune_program_input_count": (_SIZE, [_POINTER]),
    "cotune_program_output_count": (_SIZE, [_POINTER]),
    "cotune_program_infer": (
        _INT32,
        [
            _POINTER, _INT32, _to(_structs.Tensor), _SIZE, _to(_structs.ProgramValue), _SIZE,
            _to(_structs.Error),
        ],
    ),
    "cotune_program_run": (_INT32, [_POINTER, _POINTER, *_OPERANDS]),
    "cotune_program_prepare": (_INT32, [_POINTER, _POINTER, *_OPERANDS]),
    "cotune_program_agree": (_INT32, [_POINTER, _POINTER, _to(_UINT64), _SIZE]),
    "cotune_program_is_agreed": (_INT32, [_POINTER, _POINTER, _UINT64]),
    "cotune_program_run_agreed": (_INT32, [_POINTER, _POINTER, *_OPERANDS, _to(_INT32)]),
    "cotune_tune": (_INT32, [_POINTER, _to(_structs.TuneOptions), _to(_structs.TuneReport)]),
    "cotune_load": (_INT32, [_POINTER, _TEXT]),
    "cotune_save": (_INT32, [_POINTER, _TEXT]),
    "cotune_explain": (_INT32, [_POINTER, _to(_structs.Call), *_TEXT_OUT]),
    "cotune_explain_program": (_INT32, [_POINTER, _POINTER, _UINT64, *_TEXT_OUT]),
    "cotune_explain_json": (_INT32, [_POINTER, _to(_structs.Call), *_TEXT_OUT]),
    "cotune_explain_program_json": (_INT32, [_POINTER, _POINTER, _UINT64, *_TEXT_OUT]),
    "cotune_table_digest": (_UINT64, [_POINTER]),
    "cotune_table_generation": (_INT64, [_POINTER]),
    "cotune_last_error": (_TEXT, [_POINTER]),
    "cotune_last_result": (_INT32, [_POINTER]),
    "cotune_version": (_TEXT, []),
}  # fmt: skip


def tree() -> pathlib.Path:
    """Returns the folder with bin/, lib/ and include/ that has the library."""
    named = os.environ.get("COTUNE_LIBRARY")
    if named:
        return pathlib.Path(named).absolute().parent.parent
    in_wheel = pathlib.Path(__file__).absolute().parent / "tree"
    # A tree of `./dev dist` has the package in python/.
    around = pathlib.Path(__file__).absolute().parents[2]
    return around if not in_wheel.exists() and (around / "lib" / LIBRARY_NAME).exists() else in_wheel


def library_path() -> pathlib.Path:
    """Returns the file that COTUNE_LIBRARY names, or else the library of the tree in or around this package.

    Raises MachineError if the file does not exist.
    """
    named = os.environ.get("COTUNE_LIBRARY")
    if named:
        path = pathlib.Path(named)
        if path.is_file():
            return path.absolute()
        raise MachineError(
            f"there is no file {named} (COTUNE_LIBRARY): the path is wrong, or relative to another "
            f"folder; name the file {LIBRARY_NAME} itself, or unset the variable"
        )
    path = tree() / "lib" / LIBRARY_NAME
    if path.is_file():
        return path
    raise MachineError(
        f"{LIBRARY_NAME} is not there ({path}): this package is a checkout, not an installed "
        "wheel; install the wheel of `./dev wheel DIR`, or set COTUNE_LIBRARY to "
        "lib/libcotune.so.0 of a tree of `./dev dist DIR`"
    )


def check_version(text: str, path: pathlib.Path) -> None:
    """Raises MachineError if a library of that version may lack a function that this package calls."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+).*", text)
    numbers = tuple(int(each) for each in found.groups()) if found else (-1, -1, -1)
    # Before 1.0.0 a minor version may change everything.
    same = 2 if VERSION[0] == 0 else 1
    if numbers[:same] == VERSION[:same] and numbers >= VERSION:
        return
    wanted = ".".join(map(str, VERSION))
    raise MachineError(
        f"libcotune is {text}, and this package needs {wanted} ({path}): they come from two "
        "installations; unset COTUNE_LIBRARY, or install the wheel of the same version"
    )


def lacks(path: pathlib.Path, function: str) -> MachineError:
    """Returns the error for a library that lacks a function of this package's version."""
    wanted = ".".join(map(str, VERSION))
    return MachineError(
        f"{path.name} has no function {function}, so it is of another version than this package ({path}): they come "
        f"from two installations; unset COTUNE_LIBRARY, or install the wheel of version {wanted}"
    )


def bind(loaded: ctypes.CDLL, path: pathlib.Path, prototypes: dict[str, tuple[type | None, list[type]]]) -> None:
    """Gives the functions of a library their prototypes. Raises MachineError for a function that is missing."""
    for name, (result, arguments) in prototypes.items():
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise lacks(path, name) from None
        function.restype, function.argtypes = result, arguments


@functools.cache
def library() -> ctypes.CDLL:
    """Returns libcotune with its prototypes, and loads it at the first call. Any thread may call it.

    Raises MachineError if the library is missing, cannot be loaded, or is of another version.
    """
    path = library_path()
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as failure:
        raise MachineError(
            f"libcotune cannot be loaded ({path}): {failure}; it needs a Linux on x86_64 with "
            "glibc 2.36 or newer, and the libraries beside it"
        ) from failure
    bind(loaded, path, {"cotune_version": PROTOTYPES["cotune_version"]})
    check_version(loaded.cotune_version().decode(), path)
    bind(loaded, path, PROTOTYPES)
    return loaded
