"""The table of renames: maps recorded names to current ones in inputs, and back in answers."""

from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import yaml

TABLE = Path(__file__).with_name("renamed.yaml")
PathOf = tuple[str, ...]
UNRENAMED = " (not renamed)"
"""Marks an old name in an answer that the table declares as renamed."""


class Names:
    """Renames of one kind, old to new. Some apply only below certain paths."""

    def __init__(self, table: Mapping[str, str] | None) -> None:
        self._by_name: dict[str, list[tuple[PathOf, str]]] = {}
        for old, new in (table or {}).items():
            *before, name = old.split(".")
            self._by_name.setdefault(name, []).append((tuple(before), new))
        self._old_names: dict[str, dict[str, None]] = {}
        for name, candidates in self._by_name.items():
            candidates.sort(key=lambda candidate: -len(candidate[0]))
            for new in (name, *(new for _, new in candidates)):
                self._old_names.setdefault(new, {})[name] = None

    def new(self, path: PathOf, old: str) -> str:
        """The current name at a path of old names."""
        return next(
            (new for before, new in self._by_name.get(old, ()) if path[len(path) - len(before) :] == before), old
        )

    def old(self, path: PathOf, new: str) -> str:
        """The recorded name at a path of old names."""
        for old in self._old_names.get(new, ()):
            if self.new(path, old) == new:
                return old
        return new + UNRENAMED if self.new(path, new) != new else new


UNCHANGED = Names(None)


class Renames:
    """All renames."""

    def __init__(self, table: Mapping[str, Any] | None = None) -> None:
        self._table = yaml.safe_load(TABLE.read_text()) if table is None else table
        self._names: dict[str, Names] = {}

    def names(self, section: str) -> Names:
        """Renames of a section."""
        if section not in self._names:
            self._names[section] = Names(cast("dict[str, str] | None", self._table.get(section)))
        return self._names[section]

    @cached_property
    def _values(self) -> dict[str, dict[str, Names]]:
        sections = ("values", "setting_values", "parameter_values", "event_values")
        return {
            section: {field: Names(table) for field, table in (self._table.get(section) or {}).items()}
            for section in sections
        }

    def values(self, section: str, path: PathOf) -> Names:
        """Renames of values at a path."""
        return next((names for field, names in self._values[section].items() if ends(path, field)), UNCHANGED)

    def sent(self, document: Any, keys: str, values: str, path: PathOf = ()) -> Any:
        """Convert a document from old to current names."""
        if isinstance(document, dict):
            names = self.names(keys)
            return {
                names.new(path, name): self.sent(part, keys, values, (*path, name)) for name, part in document.items()
            }
        if isinstance(document, list):
            return [self.sent(part, keys, values, path) for part in document]
        return self.values(values, path).new((), document) if isinstance(document, str) else document

    def answered(self, document: Any, path: PathOf = ()) -> Any:
        """Convert an answer from current to old names."""
        if isinstance(document, dict):
            renamed = {}
            for name, part in document.items():
                old = self.names("fields").old(path, name)
                renamed[old] = self.answered(part, (*path, old))
            return renamed
        if isinstance(document, list):
            return [self.answered(part, path) for part in document]
        return self.values("values", path).old((), document) if isinstance(document, str) else document

    def route(self, path: str) -> str:
        """Convert a path of an old route."""
        for old, new in (self._table.get("routes") or {}).items():
            if path == old or path.startswith(f"{old}/"):
                return str(new) + path[len(old) :]
        return path

    def query(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """Convert parameters with old names."""
        renamed = {}
        for name, value in parameters.items():
            names = self.values("parameter_values", (name,))
            renamed[self.names("parameters").new((), name)] = ",".join(names.new((), part) for part in value.split(","))
        return renamed

    def command(self, arguments: list[str]) -> list[str]:
        """Convert a command line with old names."""
        for old, new in (self._table.get("commands") or {}).items():
            words = old.split()
            if arguments[: len(words)] == words:
                arguments = [*str(new).split(), *arguments[len(words) :]]
                break
        options = self.names("options")
        return [options.new((), word) if word.startswith("-") else word for word in arguments]


def ends(path: PathOf, pattern: str) -> bool:
    """Whether the end of a path matches a dotted pattern."""
    parts = _parts(pattern)
    return path[len(path) - len(parts) :] == parts


@cache
def _parts(pattern: str) -> PathOf:
    return tuple(pattern.split("."))
