"""Changes the tests of a folder as Python imports them; their files stay as they are.

A name that a module imports from an installed module and that is not there gets a placeholder: only those tests fail that use it.
If the tests are lifted, what they write of GPUs in their own code is of the CPU: the device "cuda", its indices, .cuda() of a
tensor or a model, and the backend "nccl". Texts that they look for in generated code stay as they are.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import pathlib
import re
import sys
from types import CodeType, ModuleType
from typing import Any

# The names that the tests of this process have asked for in vain, each with its module.
absent: list[str] = []

_TAKES_ABSENT = "__cotune_take_absent"
_CUDA_DEVICE = re.compile(r"cuda(:\d+)?")


class AbsentNameError(AttributeError):
    """A test uses a name that the installed version does not have."""


class Placeholder:
    """Stands for a name that is absent. Each use of it raises an error that has the name."""

    def __init__(self, name: str):
        self._name = name

    def _fail(self) -> Any:
        raise AbsentNameError(f"the installed version has no {self._name}")

    def __call__(self, *_arguments: Any, **_named: Any) -> Any:
        return self._fail()

    def __getattr__(self, _attribute: str) -> Any:
        return self._fail()

    def __mro_entries__(self, _bases: tuple) -> Any:
        return self._fail()


def take_absent(module: str, name: str, error: ImportError) -> Placeholder:
    """The placeholder of a name. Raises `error` if it is not the name that is absent, but a module."""
    if isinstance(error, ModuleNotFoundError) or error.name != module:
        raise error
    absent.append(f"{module}.{name}")
    return Placeholder(absent[-1])


class _PlacesAbsent(ast.NodeTransformer):
    """Makes `from m import a, b` at the top of a module take a placeholder for each name that m does not have."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        node.body = [part for each in node.body for part in self._split(each)]
        return node

    def _split(self, statement: ast.stmt) -> list[ast.stmt]:
        if not isinstance(statement, ast.ImportFrom) or statement.level or statement.module in (None, "__future__"):
            return [statement]
        if any(each.name == "*" for each in statement.names):
            return [statement]
        return [ast.copy_location(self._guarded(statement.module, each), statement) for each in statement.names]

    @staticmethod
    def _guarded(module: str | None, name: ast.alias) -> ast.stmt:
        error = f"{_TAKES_ABSENT}_error"
        call = ast.Call(
            ast.Name(_TAKES_ABSENT, ast.Load()),
            [ast.Constant(module), ast.Constant(name.name), ast.Name(error, ast.Load())], [],
        )  # fmt: skip
        taken = ast.Assign([ast.Name(name.asname or name.name, ast.Store())], call)
        handler = ast.ExceptHandler(ast.Name("ImportError", ast.Load()), error, [taken])
        return ast.Try([ast.ImportFrom(module, [name], 0)], [handler], [], [])


class _Lifts(ast.NodeTransformer):
    """Puts the CPU and gloo in the place of CUDA and NCCL."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str):
            if _CUDA_DEVICE.fullmatch(node.value):
                return ast.copy_location(ast.Constant("cpu"), node)
            if node.value == "nccl":
                return ast.copy_location(ast.Constant("gloo"), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """f"cuda:{rank}" is a device; the parts of other texts stay."""
        first = node.values[0] if node.values else None
        is_device = len(node.values) == 2 and isinstance(first, ast.Constant) and first.value == "cuda:"
        return ast.copy_location(ast.Constant("cpu"), node) if is_device else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            node.func.attr, node.args, node.keywords = "cpu", [], []
        return node


def change(source: str, path: str, lifts: bool) -> CodeType:
    tree: ast.AST = _PlacesAbsent().visit(ast.parse(source, path))
    if lifts:
        tree = _Lifts().visit(tree)
    return compile(ast.fix_missing_locations(tree), path, "exec")


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, lifts: bool):
        super().__init__(name, path)
        self._lifts = lifts

    def get_code(self, fullname: str) -> CodeType:
        """The code of the changed source: what Python has stored of the file is of the source without changes."""
        return change(self.get_source(fullname) or "", self.path, self._lifts)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, _TAKES_ABSENT, take_absent)
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that lie in the folder itself."""

    def __init__(self, folder: pathlib.Path, lifts: bool):
        self._folder, self._lifts = str(folder), lifts

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if path is not None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, [self._folder], target)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        if spec.submodule_search_locations is None:
            spec.loader = _Loader(fullname, spec.loader.path, self._lifts)
        return spec


def change_imports(folder: pathlib.Path, lifts: bool) -> None:
    """Python imports the modules of the folder with these changes from now on, in this process."""
    # Modules of Python itself come first, as they do without the folder.
    sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), _Finder(folder, lifts))
