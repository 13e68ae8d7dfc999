"""Finds tests and benchmarks that change a module or class of this repository: `python lint/patches.py`.

A test hands such a part in instead: as an argument, or as a part of the `Container`. Objects that a test made, the
standard library and third parties are not checked.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence

from lint.sources import Source, sources

FOLDERS = ("benchmarks/", "tests/")
PACKAGES = frozenset(
    ["authoring", "benchmarks", "functions", "gpucost", "gpucost_cli", "gpucost_devstack", "scripts", "tests"]
)
SETTERS = frozenset(["setattr", "delattr", "setitem", "delitem", "patch"])
"""Functions that change their first argument: Python's, those of `monkeypatch`, and `mock.patch`."""
PATCHERS = frozenset(["object", "multiple", "dict"])
"""Further functions of `mock.patch`."""


def patched_names(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and name of each module, class or attribute of this repository that a module changes."""
    imported = dict(_imported_names(nodes))
    for node in nodes:
        for target in _targets(node):
            name = _name_of(target, imported)
            if name.partition(".")[0] in PACKAGES:
                yield target.lineno, name


def _targets(node: ast.AST) -> list[ast.expr]:
    """The expressions whose attributes or items a node sets or deletes."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[target, *_]) if name in SETTERS:
            return [target]
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="patch") | ast.Attribute(attr="patch"), attr=name), args=[target, *_]
        ) if name in PATCHERS:
            return [target]
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            parts = [part for target in targets for part in getattr(target, "elts", [target])]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            parts = [target]
        case _:
            return []
    return [part.value for part in parts if isinstance(part, ast.Attribute | ast.Subscript)]


def _imported_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """The names that a module imports, each with the full name that it stands for."""
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module), names=aliases):
                yield from ((alias.asname or alias.name, f"{module}.{alias.name}") for alias in aliases)
            case ast.Import(names=aliases):
                for alias in aliases:
                    first = alias.name.partition(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (first, first)


def _name_of(target: ast.expr, imported: dict[str, str]) -> str:
    """The full name that an expression stands for, if it begins with an imported name or is a dotted text; else ""."""
    match target:
        case ast.Constant(value=str(name)):
            return name
        case ast.Name(id=name):
            return imported.get(name, "")
        case ast.Attribute(value=parent, attr=name):
            parent_name = _name_of(parent, imported)
            return f"{parent_name}.{name}" if parent_name else ""
        case ast.Subscript(value=parent):
            return _name_of(parent, imported)
    return ""


def check(files: Iterable[Source]) -> list[str]:
    """A line for each patch."""
    patches = [
        f"{file.name}:{line}: {name} is patched"
        for file in files
        if file.name.startswith(FOLDERS)
        for line, name in patched_names(file.nodes)
    ]
    if patches:
        patches.append("Hand the part in instead: as an argument, or as a part of the Container.")
    return patches


def main() -> int:
    """Print every patch, and return the exit status."""
    problems = check(sources())
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
