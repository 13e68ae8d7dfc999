"""OpenCost's filter language, version 2 (core/pkg/filter/ast): `namespace:"a","b"+controllerKind!:"job"`.

    filter     := element (op element)*           one op per level: all '+' (and), or all '|' (or)
    element    := comparison | '(' filter ')'
    comparison := field op '"' text '"' (',' '"' text '"')*
    field      := cluster | node | namespace | controllerName | controllerKind | pod | label[name]
    op         := ':' | '!:' | '~:' | '!~:' | '<~:' | '!<~:' | '~>:' | '!~>:'

Several values are any of them, with a negated op none of them. `~:` is "contains", `<~:` "begins with",
`~>:` "ends with".
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpucost.features.opencost.properties import NONE, Properties, label_of

Predicate = Callable[[Properties], bool]
LONGEST = 4000
_DEEPEST = 20
_FIELDS = {
    "cluster": "cluster",
    "node": "node",
    "namespace": "namespace",
    "controllerName": "controller",
    "controllerKind": "controller_kind",
    "pod": "pod",
}
_UNKNOWN = {"container", "provider", "services", "annotation", "department", "environment", "owner", "product", "team"}
_TESTS: dict[str, Callable[[str, str], bool]] = {
    ":": lambda have, want: have == want,
    "~:": lambda have, want: want in have,
    "<~:": lambda have, want: have.startswith(want),
    "~>:": lambda have, want: have.endswith(want),
}
_TOKEN = re.compile(r'\s*(?:(!?(?:<~|~>|~)?:)|([+|(),])|"([^"]*)"|\[([^\]]*)\]|([0-9A-Za-z_-]+))')


@dataclass(frozen=True, slots=True)
class Filter:
    """Which pieces of the fleet are asked for."""

    matches: Predicate = field(default=lambda _: True)
    needs: frozenset[str] = frozenset()
    """Fields of `Properties` that it reads."""


def parse_filter(text: str, cost_labels: Sequence[str]) -> Filter:
    """Read a filter; "" lets everything through.

    Args:
        text: as in the parameter `filter`.
        cost_labels: the labels that the ledger keeps.

    Raises:
        ValueError: it cannot be read, or asks for what the ledger does not keep; says where and what is allowed.
    """
    if len(text) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    if not text.strip():
        return Filter()
    parser = _Parser(_tokens(text), cost_labels)
    matches = parser.group(0)
    return Filter(matches, frozenset(parser.needs))


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"cannot be read from character {at + 1} on: {text[at : at + 20]!r}")
        operator, mark, quoted, key, word = match.groups()
        for kind, value in (("op", operator), ("mark", mark), ("text", quoted), ("key", key), ("word", word)):
            if value is not None:
                found.append((kind, value))
        at = match.end()
    return [*found, ("end", "")]


class _Parser:
    """Recursive descent, as the source's."""

    def __init__(self, tokens: list[tuple[str, str]], cost_labels: Sequence[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._cost_labels = cost_labels
        self.needs: set[str] = set()

    def group(self, depth: int) -> Predicate:
        if depth > _DEEPEST:
            raise ValueError(f"has more than {_DEEPEST} brackets within one another")
        parts = [self._element(depth)]
        joint = self._peek()
        while self._peek() in (("mark", "+"), ("mark", "|")):
            if self._peek() != joint:
                raise ValueError("mixes + and | on one level; put one of them in brackets")
            self._at += 1
            parts.append(self._element(depth))
        end = ("mark", ")") if depth else ("end", "")
        if self._peek() != end:
            raise ValueError(f"expected {end[1] or 'the end, + or |'}, found {self._peek()[1]!r}")
        self._at += 1
        if len(parts) == 1:
            return parts[0]
        join = all if joint == ("mark", "+") else any
        return lambda held: join(part(held) for part in parts)

    def _element(self, depth: int) -> Predicate:
        if self._peek() == ("mark", "("):
            self._at += 1
            return self.group(depth + 1)
        return self._comparison()

    def _comparison(self) -> Predicate:
        name = self._take("word", f"a field: {', '.join(_FIELDS)}, label[name]")
        read = self._read(name)
        operator = self._take("op", "one of : !: ~: !~: <~: !<~: ~>: !~>:")
        values = [self._take("text", 'a value in "quotes"')]
        while self._peek() == ("mark", ","):
            self._at += 1
            values.append(self._take("text", 'a value in "quotes"'))
        test = _TESTS[operator.lstrip("!")]
        wanted = ["" if value == NONE else value for value in values]
        if name == "controllerKind":
            wanted = [value.lower() for value in wanted]
        negated = operator.startswith("!")
        return lambda held: any(test(read(held), value) for value in wanted) != negated

    def _read(self, name: str) -> Callable[[Properties], str]:
        if name == "label":
            if self._peek()[0] != "key":
                raise ValueError("label needs a name: label[app]")
            label = label_of(self._take("key", "a name"), self._cost_labels)
            self.needs.add("labels")
            return lambda held: held.label(label) or ""
        if name in _UNKNOWN:
            raise ValueError(f"cannot filter by {name}; allowed: {', '.join(_FIELDS)}, label[name]")
        if name not in _FIELDS:
            raise ValueError(f"{name!r} is not a field; allowed: {', '.join(_FIELDS)}, label[name]")
        attribute = _FIELDS[name]
        self.needs.add(attribute)
        return lambda held: str(getattr(held, attribute))

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def _take(self, kind: str, expected: str) -> str:
        found, value = self._peek()
        if found != kind:
            raise ValueError(f"expected {expected}, found {value or 'the end'!r}")
        self._at += 1
        return value
