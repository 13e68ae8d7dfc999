"""Finds tests that replace an attribute of a module or class of this repository: `python lint/patches.py`.

A test hands such a part in instead: through a constructor's argument or the `Container`. Objects that a test made,
the standard library and third parties are not checked.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = frozenset(["authoring", "benchmarks", "devstack", "functions", "gpucost", "gpucost_cli", "scripts", "tests"])
SETTERS = frozenset(["setattr", "delattr", "setitem", "delitem", "object", "multiple", "dict", "patch"])
"""Functions of `monkeypatch` and `unittest.mock` (and `setattr` itself) whose first argument is changed."""


def patched_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every attribute of this repository's modules and classes that a module sets."""
    imported = dict(_imported_names(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=setter) | ast.Attribute(attr=setter), args=[target, *_]) if (
                setter in SETTERS
            ):
                targets = [target]
            case ast.Assign(targets=targets):
                targets = [target.value for target in targets if isinstance(target, ast.Attribute | ast.Subscript)]
            case (
                ast.AugAssign(target=ast.Attribute(value=target) | ast.Subscript(value=target))
                | ast.AnnAssign(target=ast.Attribute(value=target) | ast.Subscript(value=target))
            ):
                targets = [target]
            case _:
                continue
        for target in targets:
            name = _name_of(target, imported)
            if name.partition(".")[0] in PACKAGES:
                yield node.lineno, name


def _imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that a module imports, each with the full name that it stands for."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=aliases):
                yield from ((alias.asname or alias.name, f"{module}.{alias.name}") for alias in aliases)
            case ast.Import(names=aliases):
                for alias in aliases:
                    first = alias.name.partition(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (first, first)


def _name_of(target: ast.expr, imported: dict[str, str]) -> str:
    """The full name of an expression that an import leads to, or the text of a name in quotes; else ""."""
    match target:
        case ast.Constant(value=str(name)):
            return name if "." in name else ""
        case ast.Name(id=name):
            return imported.get(name, "")
        case ast.Attribute(value=parent, attr=name):
            parent_name = _name_of(parent, imported)
            return f"{parent_name}.{name}" if parent_name else ""
        case ast.Subscript(value=parent):
            return _name_of(parent, imported)
    return ""


def main() -> int:
    """Print every place, and return the exit status."""
    patches = [
        f"{path.relative_to(REPOSITORY)}:{line}: {name}"
        for path in sorted((REPOSITORY / "tests").rglob("*.py"))
        for line, name in patched_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    for patch in patches:
        sys.stdout.write(f"{patch} is patched. Hand the part in instead: as an argument or through the Container.\n")
    return 1 if patches else 0


if __name__ == "__main__":
    sys.exit(main())
