"""Finds in the source the error messages that name something to do.

A message is the text of a raised exception: in the `raise` itself, in what the function assigns to a variable that the
`raise` uses, and in what a function returns that the `raise` calls.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gpucost_devstack.template import REPOSITORY

LAYER = REPOSITORY / "layers" / "common" / "gpucost"
PRINTED = (
    REPOSITORY / "gpucost_cli",
    REPOSITORY / "gpucost_devstack" / "demo_records.py",
    LAYER / "settings",
    LAYER / "sources",
    LAYER / "runtime",
    LAYER / "storage",
    LAYER / "pipeline",
    LAYER / "features" / "alerting",
    LAYER / "features" / "recommendations",
)
"""Files and folders whose messages reach the terminal. Those of the API's parameters are followed by
tests/functions/test_remedies.py and tests/features/opencost/test_routes.py."""
PLACEHOLDER = "\0"
_VERBS = (
    "add",
    "begin",
    "build",
    "change",
    "check",
    "choose",
    "close",
    "compare",
    "complete",
    "copy",
    "correct",
    "create",
    "deploy",
    "drop",
    "edit",
    "give",
    "install",
    "keep",
    "leave",
    "list",
    "make",
    "match",
    "name",
    "omit",
    "pass",
    "push",
    "put",
    "remove",
    "rename",
    "reopen",
    "repeat",
    "replace",
    "request",
    "restate",
    "restore",
    "run",
    "say",
    "select",
    "set",
    "shorten",
    "show",
    "start",
    "stop",
    "store",
    "try",
    "use",
    "wait",
    "write",
)
_REMEDY = re.compile(
    rf"(?:^|[.;:,] |\bor |\band |\bthen )(?:{'|'.join(f'[{verb[0].upper()}{verb[0]}]{verb[1:]}' for verb in _VERBS)})\b"
    r"|gpucost [a-z]+ |`gpucost|make deploy|(?<!^)(?<!^\0: )--[a-z]"
)

_SHORTEST = 25
"""Characters of the shortest text that identifies a message."""


class Message(NamedTuple):
    """A message, with `PLACEHOLDER` for what is filled in."""

    file: str
    text: str

    def is_in(self, printed: str) -> bool:
        """Whether a printed text has what the message says to do, or is a literal part of the message."""
        return printed in self.text or any(
            re.search(".*".join(map(re.escape, part.split(PLACEHOLDER))), printed) for part in self._remedies()
        )

    def _remedies(self) -> Iterator[str]:
        """The sentences that say what to do, each with those before it that identify the message."""
        sentences = re.split(r"(?<=[.;:]) ", self.text)
        for number, sentence in enumerate(sentences):
            if _REMEDY.search(sentence):
                first = number
                while first and len(" ".join(sentences[first : number + 1]).replace(PLACEHOLDER, "")) < _SHORTEST:
                    first -= 1
                yield " ".join(sentences[first : number + 1]).strip(PLACEHOLDER + " .")


def messages(paths: Sequence[Path] = PRINTED) -> list[Message]:
    """The messages below some paths that name something to do."""
    files = {file: ast.parse(file.read_text()) for path in paths for file in _python_files(path)}
    functions: dict[str, list[ast.FunctionDef]] = {}
    for tree in files.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                functions.setdefault(node.name, []).append(node)
    with_remedies = {
        Message(str(file.relative_to(REPOSITORY)), text)
        for file, tree in files.items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for raised in ast.walk(function)
        if isinstance(raised, ast.Raise) and raised.exc is not None
        for text in _texts_of(raised.exc, function, functions)
        if " " in text and _REMEDY.search(text)
    }
    return sorted(with_remedies)


def _python_files(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def _texts_of(
    raised: ast.expr, function: ast.FunctionDef, functions: dict[str, list[ast.FunctionDef]]
) -> Iterator[str]:
    names = {node.id for node in ast.walk(raised) if isinstance(node, ast.Name)}
    expressions = [raised, *_assigned(function, names)]
    for expression in expressions:
        yield from _templates(expression)
        for call in ast.walk(expression):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                for called in functions.get(call.func.id, ()):
                    for node in ast.walk(called):
                        if isinstance(node, ast.Return) and node.value is not None:
                            yield from _templates(node.value)


def _assigned(function: ast.FunctionDef, names: set[str]) -> Iterator[ast.expr]:
    """What a function assigns or appends to variables of these names."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and names & {
            name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
        }:
            yield node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and (node.func.attr, node.func.value.id in names) == ("append", True)
        ):
            yield from node.args


def _templates(expression: ast.AST) -> Iterator[str]:
    if isinstance(expression, ast.JoinedStr):
        parts = []
        for part in expression.values:
            parts.append(str(part.value) if isinstance(part, ast.Constant) else PLACEHOLDER)
            if isinstance(part, ast.FormattedValue):
                yield from _templates(part.value)
        yield "".join(parts)
    elif isinstance(expression, ast.Constant):
        if isinstance(expression.value, str):
            yield expression.value
    else:
        for child in ast.iter_child_nodes(expression):
            yield from _templates(child)
