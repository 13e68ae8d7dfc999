"""Parts of PromQL expressions that several rules share."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpucost.sources.prometheus.queries import quote


@dataclass(frozen=True, slots=True)
class Rule:
    """A recording rule."""

    record: str
    expression: str

    def to_dict(self, labels: Mapping[str, str]) -> dict[str, object]:
        """Return the rule as Prometheus reads it."""
        return {"record": self.record, "expr": single_line(self.expression), "labels": dict(labels)}


SelectorBuilder = Callable[..., str]
"""Builds a vector from matchers."""


def equals(label: str, value: str) -> str:
    """Return a matcher of exactly this value."""
    return f"{label}={quote(value)}"


def matches(label: str, *patterns: str) -> str:
    """Return a matcher of values that one of the regular expressions matches completely."""
    return f"{label}=~{quote('|'.join(patterns))}"


def first_label(vector: str, target: str, label_names: Sequence[str]) -> str:
    """Set a label to the first of some labels that a series has, or remove it."""
    joined = ", ".join(f'"{name}"' for name in label_names)
    return (
        f'label_replace(label_join({vector}, "{target}", ";", {joined}), "{target}", "$1", "{target}", ";*([^;]*).*")'
    )


def with_label(vector: str, label: str, value: str) -> str:
    """Set a label of a vector to a plain text."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$").replace("\n", "\\n")
    return f'label_replace({vector}, "{label}", "{escaped}", "", "")'


def first_available(vectors: Iterable[str], on: str) -> str:
    """Combine vectors: for each value of the labels `on`, take the first vector that has it."""
    return f" or on ({on}) ".join(vectors)


def recorded_selector(metric: str, cluster: str, *matchers: str) -> str:
    """Return a selector of a series that the rules record for a cluster."""
    return f"{metric}{{{','.join((*matchers, equals('cluster', cluster)))}}}"


def single_series(vector: str, by: str) -> str:
    """Keep one series for each value of some labels.

    For a while, a series that ended exists next to its successor, and a join with both would fail.
    """
    return f"topk by ({by}) (1, {vector})"


def minimum(left: str, right: str) -> str:
    """Return the smaller of two vectors with equal labels, for series that both have."""
    return f"(({left}) <= ({right}) or (({right}) and ({left})))"


def maximum(left: str, right: str) -> str:
    """Return the larger of two vectors with equal labels; a series of only one vector is kept."""
    return f"(({left}) >= ({right}) or ({right}) or ({left}))"


def glob_to_regex(pattern: str) -> str:
    """Translate a shell pattern to Prometheus' regular expressions (RE2, anchored at both ends)."""
    regex, index = "", 0
    while index < len(pattern):
        letter = pattern[index]
        index += 1
        end = pattern.find("]", index + 1 + pattern.startswith("!", index)) if letter == "[" else -1
        if letter == "*":
            regex += ".*"
        elif letter == "?":
            regex += "."
        elif end > 0:
            regex += _character_class(pattern[index:end])
            index = end + 1
        else:
            regex += re.escape(letter)
    return regex


def _character_class(inside: str) -> str:
    """Translate the inside of brackets as `fnmatch` does: a range from a later to an earlier letter is empty."""
    negated, inside = inside.startswith("!"), inside.removeprefix("!")
    members, index = "", 0
    while index < len(inside):
        first, last = inside[index], inside[index + 2 : index + 3]
        if inside[index + 1 : index + 2] != "-" or not last:
            members += _escape_in_class(first)
            index += 1
            continue
        if first <= last:
            members += f"{_escape_in_class(first)}-{_escape_in_class(last)}"
        index += 3
    if not members:
        return "." if negated else r"[^\s\S]"
    return f"[{'^' * negated}{members}]"


def _escape_in_class(letter: str) -> str:
    return re.sub(r"[\\\[\]^&~|-]", r"\\\g<0>", letter)


def single_line(expression: str) -> str:
    """Put an expression on one line."""
    return " ".join(expression.split())
