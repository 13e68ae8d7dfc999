"""Reads YAML, with error messages in terms of the document, and finds the lines of keys.

Imported only when needed, because PyYAML slows cold starts. Functions usually read the JSON form of the settings. They
need this module for documents that are stored without it, and for the lines in error messages.
"""

from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import yaml

from gpucost.core.decimals import MAX_LENGTH
from gpucost.core.errors import SettingsError
from gpucost.settings.section import MAX_SHOWN_CHARACTERS

_YAML_HINTS = {
    r"'\t'": "indent with spaces, not with tabs",
    "undefined alias": "put text that begins with a special character in quotes",
    "cannot start any token": "put text that begins with a special character in quotes",
    "mapping values are not allowed": "begin all keys of a section in the same column, put a space after every "
    "colon, and text that contains ': ' in quotes",
    "could not find expected ':'": "put a colon and a space after every key",
    "got '<scalar>'": "close every quotation mark, also in the lines before",
    "expected ',' or": "close every { and [, and put text that begins with a special character in quotes",
    "expected the node content": "close every { and [, and begin the entries of a list in lines of their own",
    "unexpected end of stream": "close every quotation mark",
    "expected alphabetic or numeric character": "put text that begins with a special character in quotes",
    "found another document": "settings are one document, so remove the line ---",
    "expected <block end>": "indent all keys of a section, and all entries of a list, by the same number of spaces",
}
"""What to do about a problem that PyYAML reports, by a part of its message."""

_MAX_DEPTH = 50
"""Sections and lists within each other. Settings have fewer than ten. The interpreter's own limit varies."""

_NUMBERS = frozenset(["tag:yaml.org,2002:int", "tag:yaml.org,2002:float"])


def _bounded(node: yaml.Node) -> yaml.Node:
    """Refuse a number of many characters. `0xfff…` and `1:59:59:…` have more digits than Python writes."""
    if node.tag in _NUMBERS and len(node.value) > MAX_LENGTH:
        raise ValueError(f"{len(node.value)} characters")
    return node


class _UniqueKeyLoader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys, of which YAML would silently use the last.

    `CSafeLoader` would be ten times faster, but deeply nested documents crash the process.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise RecursionError
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(_bounded(node), deep)
        except (ValueError, AttributeError, OverflowError) as error:  # also a date such as 2026-02-30
            kind, value = node.tag.rpartition(":")[2], str(node.value)[:MAX_SHOWN_CHARACTERS]
            problem = f"{value!r} is not a valid {kind}; correct it, or put it in quotes if it is text"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=deep)
            if not isinstance(key, Hashable):
                break  # the base class raises the error
            if key in seen:
                problem = f"key {str(key)[:MAX_SHOWN_CHARACTERS]!r} appears twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_yaml(text: str, name: str) -> Any:
    """Parse YAML without validating it.

    Args:
        text: the document.
        name: plural noun for the document in messages.

    Raises:
        SettingsError: the text is not YAML. The message names the line, and says what to do.
    """
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", error)).split()).removeprefix("but ")
        hint = next((f"; {hint}" for part, hint in _YAML_HINTS.items() if part in problem), "")
        raise SettingsError(f"{name} are not valid YAML or JSON{line}: {problem}{hint}") from error
    except RecursionError as error:
        raise SettingsError(f"{name} are nested too deeply") from error


class DocumentLines:
    """Finds the lines of keys in a document of several lines."""

    def __init__(self, text: str) -> None:
        self._root: yaml.Node | None = None
        if "\n" in text.strip():
            with suppress(yaml.YAMLError, RecursionError):  # JSON may contain escapes that YAML refuses
                self._root = yaml.compose(text, Loader=_UniqueKeyLoader)

    def line_of(self, path: list[int | str]) -> int | None:
        """The line of the key at a path, or of the innermost section that the document has; None if unknown."""
        node, line = self._root, None
        for part in path:
            if isinstance(node, yaml.MappingNode):
                key_and_value = next((pair for pair in node.value if pair[0].value == str(part)), None)
                if key_and_value is None:
                    break
                key, node = key_and_value
                line = key.start_mark.line + 1
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                break
        return line
