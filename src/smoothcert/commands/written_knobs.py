"""Knobs read from the source that declares them, without importing it: help must be instant, and torch takes seconds.

Works for plain declarations: frozen dataclasses whose defaults are literals or :func:`~smoothcert.knobs.knob`
calls of literals, of built-in types, unions and Literal aliases. A test compares what is read with the classes.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Collection, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from smoothcert.knobs import Knob

_BUILT_IN: dict[str, Any] = {"int": int, "float": float, "bool": bool, "str": str, "Path": Path, "None": None}


@cache
def source_of(module: str) -> ast.Module:
    """A module's syntax tree."""
    return ast.parse(_path_of(module).read_text(encoding="utf-8"))


def written_help(module: str, function: str) -> str:
    """A function's docstring up to its parameters."""
    for node in source_of(module).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_docstring(node) or "").partition("Parameters\n---")[0]
    raise LookupError(f"{module} has no function {function}")


def written_knobs(
    module: str, cls: str, only: Collection[str] | None = None, but: Collection[str] = ()
) -> list[Knob]:
    """The fields of a dataclass, its bases' first; a field declared again keeps its place, as dataclasses have it.

    ``only`` and ``but`` limit it to these names, or to others, where not all fields are plain.
    """
    module, node = _defined(module, cls)
    assert isinstance(node, ast.ClassDef)
    found: dict[str, Knob] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id != "ABC":
            found |= {knob.name: knob for knob in written_knobs(module, base.id, only, but)}
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign):
            name, declared = ast.unparse(statement.target), ast.unparse(statement.annotation)
            wanted = name not in but and (only is None or name in only)
            if wanted and not declared.startswith("ClassVar"):
                found[name] = _knob(module, name, statement)
    return list(found.values())


def written_type(module: str, alias: str) -> Any:
    """The type that a module gives a name to."""
    where, meaning = _defined(module, alias)
    assert isinstance(meaning, ast.expr)
    return _kind(where, meaning)


@dataclasses.dataclass(frozen=True)
class Member:
    """A class or function as its file registers it."""

    name: str
    module: str
    node: ast.ClassDef | ast.FunctionDef
    mark: ast.Call
    """The decorator."""

    def variable(self, name: str) -> Any:
        """The value of a class variable, None where the class doesn't state it."""
        for statement in self.node.body:
            if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == name:
                return None if statement.value is None else ast.literal_eval(statement.value)
        return None

    def argument(self, name: str) -> Any:
        """The value of a keyword of the decorator, None where it has none."""
        return next((ast.literal_eval(word.value) for word in self.mark.keywords if word.arg == name), None)

    def keywords(self, helps: Mapping[str, str]) -> list[Knob]:
        """Those parameters of a function that ``helps`` explains."""
        assert isinstance(self.node, ast.FunctionDef)
        parameters = self.node.args.args
        defaults = [ast.literal_eval(value) for value in self.node.args.defaults]
        padded = [dataclasses.MISSING] * (len(parameters) - len(defaults)) + defaults
        return [
            Knob(each.arg, _kind(self.module, each.annotation), default, helps[each.arg])
            for each, default in zip(parameters, padded)
            if each.arg in helps and each.annotation is not None
        ]


@cache
def members(package: str, registry: str) -> tuple[Member, ...]:
    """The members of a registry by name, as decorators of the package's files declare them."""
    found, marks = [], (f"{registry}.register", "register")
    for path in sorted(_path_of(package).parent.glob("*.py")):
        module = f"{package}.{path.stem}"
        # Most files of a folder register nothing, and parsing them takes longer than looking.
        for node in source_of(module).body if "register(" in path.read_text(encoding="utf-8") else ():
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found += [
                    Member(ast.literal_eval(mark.args[0]), module, node, mark)
                    for mark in node.decorator_list
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) in marks
                ]
    return tuple(sorted(found, key=lambda member: member.name))


def registered(package: str, registry: str) -> dict[str, tuple[str, str]]:
    """Names of a registry with module and name of each member."""
    return {each.name: (each.module, each.node.name) for each in members(package, registry)}


def choices(package: str, registry: str) -> Any:
    """A type that takes the names of a registry."""
    literal: Any = Literal
    return literal[tuple(registered(package, registry))]


def _knob(module: str, name: str, statement: ast.AnnAssign) -> Knob:
    kind, value = _kind(module, statement.annotation), statement.value
    if value is None:
        return Knob(name, kind, dataclasses.MISSING)
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "knob":
        default, help = (ast.literal_eval(argument) for argument in value.args)
        more = {str(word.arg): ast.literal_eval(word.value) for word in value.keywords}
        return Knob(name, kind, default, help, **more)
    return Knob(name, kind, ast.literal_eval(value))


def _kind(module: str, node: ast.expr) -> Any:
    """The type that an annotation names."""
    if isinstance(node, ast.Constant):
        return None
    if isinstance(node, ast.BinOp):
        return _kind(module, node.left) | _kind(module, node.right)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
        literal: Any = Literal
        return literal[ast.literal_eval(node.slice)]
    assert isinstance(node, ast.Name), f"{module}: {ast.unparse(node)} is no plain type"
    if node.id in _BUILT_IN:
        return _BUILT_IN[node.id]
    return written_type(module, node.id)


def _defined(module: str, name: str) -> tuple[str, ast.ClassDef | ast.expr]:
    """The class or alias of this name and the module that defines it, imports followed."""
    for node in source_of(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return module, node.value
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            return _defined(str(node.module), name)
    raise LookupError(f"{module} has no {name}")


def _path_of(module: str) -> Path:
    """Where a module of this project is written; its package isn't imported, which finding its spec would do."""
    root = find_spec("smoothcert")
    assert root is not None
    assert root.origin is not None
    path = Path(root.origin).parent.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
