"""Normalizes and compares answers: exact numbers, separate texts, without run-specific values."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from tests.golden.fixtures import dumps

OF_THE_RUN = "(of the run)"
NOTHING = "(nothing)"
PathOf = tuple[str, ...]


@cache
def normalized() -> Mapping[str, list[str]]:
    """Fields excluded from the comparison, by kind."""
    table: dict[str, list[str] | None] = yaml.safe_load(Path(__file__).with_name("normalized.yaml").read_text())
    return {kind: names or [] for kind, names in table.items()}


class Difference(NamedTuple):
    """A value that differs from the recorded one."""

    path: str
    expected: Any
    actual: Any

    def __str__(self) -> str:
        return f"{self.path}\n      expected {_shown(self.expected)}\n      actual   {_shown(self.actual)}"


def split(document: Any) -> tuple[Any, Any]:
    """(answer without texts, texts by path)."""
    texts: dict[str, Any] = {}
    return _without_texts(document, (), "", texts), texts


def _without_texts(document: Any, path: PathOf, position: str, texts: dict[str, Any]) -> Any:
    if any(ends(path, name) for name in normalized()["run"]):
        return document if document is None else OF_THE_RUN
    if isinstance(document, str) and any(ends(path, name) for name in normalized()["addresses"]):
        return urlsplit(document).path.partition("/")[2].partition("/")[2]
    if path and any(ends(path, name) for name in normalized()["texts"]):
        if document not in (None, "", []):
            texts[position] = document
        return "(text)" if document not in (None, "", []) else document
    if isinstance(document, dict):
        return {
            name: _without_texts(part, (*path, name), f"{position}.{name}", texts) for name, part in document.items()
        }
    if isinstance(document, list):
        parts = [_without_texts(part, path, f"{position}[{number}]", texts) for number, part in enumerate(document)]
        is_unordered = any(ends(path, name) for name in normalized()["unordered"])
        return sorted(parts, key=dumps) if is_unordered else parts
    return document


def ends(path: PathOf, pattern: str) -> bool:
    """Whether the end of a path matches a dotted pattern."""
    parts = _parts(pattern)
    return path[len(path) - len(parts) :] == parts


@cache
def _parts(pattern: str) -> PathOf:
    return tuple(pattern.split("."))


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[Difference]:
    """All positions at which two documents differ. Numbers are compared by value, independent of their notation."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted(expected.keys() | actual.keys()):
            yield from differences(expected.get(name, NOTHING), actual.get(name, NOTHING), f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(actual, list):
        for number in range(max(len(expected), len(actual))):
            before = expected[number] if number < len(expected) else NOTHING
            now = actual[number] if number < len(actual) else NOTHING
            yield from differences(before, now, f"{path}[{number}]")
    elif not _is_equal(expected, actual):
        yield Difference(path.lstrip("."), expected, actual)


def _is_equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    numbers = (int, Decimal)
    if isinstance(expected, float) or isinstance(actual, float):
        raise TypeError("a number lost its digits on the way")
    return isinstance(expected, numbers) == isinstance(actual, numbers) and bool(expected == actual)


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
