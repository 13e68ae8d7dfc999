"""Parses OpenCost's filter language, version 2 (core/pkg/filter/ast): `namespace:"a","b"+controllerKind!:"job"`.

    filter     := element (op element)*           on each level either only '+' (and) or only '|' (or)
    element    := comparison | '(' filter ')'
    comparison := field op '"' text '"' (',' '"' text '"')*
    field      := cluster | node | namespace | controllerName | controllerKind | pod | label[name]
    op         := ':' | '!:' | '~:' | '!~:' | '<~:' | '!<~:' | '~>:' | '!~>:'

A comparison with several values matches any of them; a negated one matches none of them. `~:` is "contains", `<~:`
"starts with", `~>:` "ends with".
"""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from gpucost.features.opencost.properties import MISSING_VALUE, Properties, find_label

Predicate = Callable[[Properties], bool]
MAX_LENGTH = 4000
_MAX_DEPTH = 20
_PROPERTIES_BY_FIELD = {
    "cluster": "cluster",
    "node": "node",
    "namespace": "namespace",
    "controllerName": "controller",
    "controllerKind": "controller_kind",
    "pod": "pod",
}
_UNSUPPORTED_FIELDS = {
    "container",
    "provider",
    "services",
    "annotation",
    "department",
    "environment",
    "owner",
    "product",
    "team",
}
_OPERATORS: dict[str, Callable[[str, str], bool]] = {
    ":": lambda actual, expected: actual == expected,
    "~:": lambda actual, expected: expected in actual,
    "<~:": lambda actual, expected: actual.startswith(expected),
    "~>:": lambda actual, expected: actual.endswith(expected),
}
_TOKEN = re.compile(r'\s*(?:(!?(?:<~|~>|~)?:)|([+|(),])|"([^"]*)"|\[([^\]]*)\]|([0-9A-Za-z_-]+))')


class Filter(Struct, frozen=True):
    """A parsed filter."""

    matches: Predicate = lambda _: True
    property_names: frozenset[str] = frozenset()
    """Fields of `Properties` that the filter reads."""


def parse_filter(text: str, cost_labels: Sequence[str]) -> Filter:
    """Parse a filter; "" matches everything.

    Args:
        text: the parameter `filter`.
        cost_labels: the labels that the ledger stores.

    Raises:
        ValueError: a syntax error, or a field that the ledger does not store. The message says what is allowed.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"is longer than {MAX_LENGTH} characters. Shorten it.")
    if not text.strip():
        return Filter()
    parser = _Parser(_tokens(text), cost_labels)
    matches = parser.parse_group(0)
    return Filter(matches, frozenset(parser.fields))


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"cannot be read from character {position + 1} on: {text[position : position + 20]!r}")
        operator, mark, quoted, key, word = match.groups()
        for kind, token_text in (("op", operator), ("mark", mark), ("text", quoted), ("key", key), ("word", word)):
            if token_text is not None:
                tokens.append((kind, token_text))
        position = match.end()
    return [*tokens, ("end", "")]


class _Parser:
    """A recursive-descent parser, as OpenCost's."""

    def __init__(self, tokens: list[tuple[str, str]], cost_labels: Sequence[str]) -> None:
        self._tokens = tokens
        self._position = 0
        self._cost_labels = cost_labels
        self.fields: set[str] = set()

    def parse_group(self, depth: int) -> Predicate:
        if depth > _MAX_DEPTH:
            raise ValueError(f"has more than {_MAX_DEPTH} nested parentheses.")
        parts = [self._parse_element(depth)]
        operator = self._peek()
        while self._peek() in (("mark", "+"), ("mark", "|")):
            if self._peek() != operator:
                raise ValueError("mixes + and | on one level. Put one of them in parentheses.")
            self._position += 1
            parts.append(self._parse_element(depth))
        expected_end = ("mark", ")") if depth else ("end", "")
        if self._peek() != expected_end:
            raise ValueError(f"expected {expected_end[1] or 'the end, + or |'} but got {self._peek()[1]!r}")
        self._position += 1
        if len(parts) == 1:
            return parts[0]
        join = all if operator == ("mark", "+") else any
        return lambda properties: join(part(properties) for part in parts)

    def _parse_element(self, depth: int) -> Predicate:
        if self._peek() == ("mark", "("):
            self._position += 1
            return self.parse_group(depth + 1)
        return self._parse_comparison()

    def _parse_comparison(self) -> Predicate:
        name = self._take("word", f"a field: {', '.join(_PROPERTIES_BY_FIELD)}, label[name]")
        read_property = self._parse_field(name)
        operator = self._take("op", "one of : !: ~: !~: <~: !<~: ~>: !~>:")
        texts = [self._take("text", 'a value in "quotes"')]
        while self._peek() == ("mark", ","):
            self._position += 1
            texts.append(self._take("text", 'a value in "quotes"'))
        matches = _OPERATORS[operator.lstrip("!")]
        expected_texts = ["" if value == MISSING_VALUE else value for value in texts]
        if name == "controllerKind":
            expected_texts = [value.lower() for value in expected_texts]
        negated = operator.startswith("!")
        return lambda properties: any(matches(read_property(properties), value) for value in expected_texts) != negated

    def _parse_field(self, name: str) -> Callable[[Properties], str]:
        if name == "label":
            if self._peek()[0] != "key":
                raise ValueError("label needs a name, for example label[app].")
            label = find_label(self._take("key", "a name"), self._cost_labels)
            self.fields.add("labels")
            return lambda properties: properties.label(label) or ""
        if name in _UNSUPPORTED_FIELDS:
            raise ValueError(f"cannot filter by {name}; allowed: {', '.join(_PROPERTIES_BY_FIELD)}, label[name].")
        if name not in _PROPERTIES_BY_FIELD:
            raise ValueError(f"{name!r} is not a field; allowed: {', '.join(_PROPERTIES_BY_FIELD)}, label[name].")
        attribute = _PROPERTIES_BY_FIELD[name]
        self.fields.add(attribute)
        return lambda properties: str(getattr(properties, attribute))

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._position]

    def _take(self, kind: str, expected: str) -> str:
        token_kind, token_text = self._peek()
        if token_kind != kind:
            raise ValueError(f"expected {expected} but got {token_text or 'the end'!r}")
        self._position += 1
        return token_text
