"""cotune.h and what Python has of it: structs as C lays them out, constants, functions."""

import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "integration/python")

from cotune import _native, _structs, constants

HEADER = pathlib.Path("integration/capi/cotune.h")
# The beginning of the names of a type's constants in C, by the enumeration in Python.
PREFIXES = {
    constants.Result: "COTUNE_",
    constants.Collective: "COTUNE_COLLECTIVE_",
    constants.DType: "COTUNE_",
    constants.Reduction: "COTUNE_REDUCE_",
    constants.GroupMemory: "COTUNE_GROUP_MEMORY_",
    constants.Numerics: "COTUNE_NUMERICS_",
    _structs.FunctionFlag: "COTUNE_FUNCTION_",
}


def preprocessed() -> str:
    """The header without comments."""
    command = ["gcc", "-E", "-P", "-x", "c", str(HEADER)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def printed_by_c(expressions: list[str]) -> list[int]:
    """The values of integer expressions behind an include of the header."""
    lines = "".join(f'printf("%lld\\n", (long long)({each}));\n' for each in expressions)
    includes = f'#include <stdio.h>\n#include "{HEADER.resolve()}"\n'
    source = f"{includes}int main(void) {{\n{lines}return 0;\n}}\n"
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "print")
        subprocess.run(
            ["gcc", "-std=c99", "-x", "c", "-", "-o", program], input=source, text=True, check=True
        )
        out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return [int(line) for line in out.split()]


class HeaderTest(unittest.TestCase):
    def test_structs_are_laid_out_alike(self):
        for name, struct in _structs.STRUCTS.items():
            fields = [field[0] for field in struct._fields_]
            expressions = [f"sizeof({name})"]
            for field in fields:
                expressions += [f"offsetof({name}, {field})", f"sizeof((({name} *)0)->{field})"]
            own = [ctypes.sizeof(struct)]
            for field in fields:
                own += [getattr(struct, field).offset, getattr(struct, field).size]
            self.assertEqual(
                dict(zip(expressions, own, strict=True)),
                dict(zip(expressions, printed_by_c(expressions), strict=True)),
            )

    def test_every_struct_and_field_is_there(self):
        found = re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", preprocessed(), re.DOTALL)
        self.assertEqual({name for name, _ in found}, set(_structs.STRUCTS))
        for name, body in found:
            # A name stands in front of ; or [ or, of a function, in (*name).
            flat = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)
            names = re.findall(r"(\w+)(?:\[\d+\])?(?=[;,])", flat)
            self.assertEqual(names, [field[0] for field in _structs.STRUCTS[name]._fields_], name)

    def test_constants_are_equal_and_complete(self):
        in_python = {PREFIXES[kind] + each.name: each.value for kind in PREFIXES for each in kind}
        enums = re.findall(r"\benum \{(.*?)\};", preprocessed(), re.DOTALL)
        names = [name for body in enums for name in re.findall(r"(COTUNE_\w+)\s*=", body)]
        self.assertEqual(set(names), set(in_python))
        self.assertEqual(dict(zip(names, printed_by_c(names), strict=True)), in_python)

    def test_every_function_has_a_prototype(self):
        text = preprocessed()
        declared = re.findall(
            r'__attribute__\(\(visibility\("default"\)\)\)\s+([^;(]*?)(\w+)\(([^;]*)\);', text
        )
        self.assertEqual({name for _, name, _ in declared}, set(_native.PROTOTYPES))
        for result, name, arguments in declared:
            own_result, own_arguments = _native.PROTOTYPES[name]
            takes = [] if arguments.strip() == "void" else arguments.split(",")
            self.assertEqual(len(own_arguments), len(takes), name)
            self.assertEqual(self.kind(result), self.kind_of(own_result), f"result of {name}")
            for i, (argument, own) in enumerate(zip(takes, own_arguments, strict=True)):
                self.assertEqual(self.kind(argument), self.kind_of(own), f"argument {i} of {name}")

    @staticmethod
    def kind(declared: str) -> str:
        if "*" in declared:
            return "pointer"
        words = declared.replace("const", " ").split()
        names = {"uint64_t": "u8", "int64_t": "i8", "size_t": "u8", "void": "none", "int": "i4"}
        return names.get(words[0], "i4")

    @staticmethod
    def kind_of(own: type | None) -> str:
        if own is None:
            return "none"
        if own in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(own, "contents"):
            return "pointer"
        return ("i" if own(-1).value < 0 else "u") + str(ctypes.sizeof(own))

    def test_the_version_is_that_of_the_header(self):
        self.assertEqual(
            printed_by_c(["COTUNE_VERSION_MAJOR", "COTUNE_VERSION_MINOR", "COTUNE_VERSION_PATCH"]),
            list(_native.VERSION),
        )


if __name__ == "__main__":
    unittest.main()
