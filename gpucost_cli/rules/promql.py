"""Pieces of PromQL expressions that several rules share."""

import re
from collections.abc import Callable, Iterable, Sequence

from gpucost.sources.prometheus.queries import quote

Select = Callable[..., str]
"""Makes a vector from matchers."""


def equals(label: str, value: str) -> str:
    """A matcher of exactly this value."""
    return f"{label}={quote(value)}"


def matches(label: str, *patterns: str) -> str:
    """A matcher of values that any of some regular expressions matches as a whole."""
    return f"{label}=~{quote('|'.join(patterns))}"


def first_of(vector: str, target: str, sources: Sequence[str]) -> str:
    """The vector with a label set to the first of some labels that is there; removed where none is."""
    joined = ", ".join(f'"{source}"' for source in sources)
    return (
        f'label_replace(label_join({vector}, "{target}", ";", {joined}), "{target}", "$1", "{target}", ";*([^;]*).*")'
    )


def marked(vector: str, label: str, value: str) -> str:
    """The vector with a label set to a value; `value` is plain text."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$").replace("\n", "\\n")
    return f'label_replace({vector}, "{label}", "{escaped}", "", "")'


def first_that_matches(vectors: Iterable[str], on: str) -> str:
    """Of vectors that tell of the same things, for each thing the first that tells of it."""
    return f" or on ({on}) ".join(vectors)


def one_of_each(vector: str, by: str) -> str:
    """One series for each value of some labels: for a while, series that are over may be seen beside their successors,
    and a join would fail as a whole."""
    return f"topk by ({by}) (1, {vector})"


def smaller(one: str, other: str) -> str:
    """The smaller of two vectors of equal labels, where both are there."""
    return f"(({one}) <= ({other}) or (({other}) and ({one})))"


def larger(one: str, other: str) -> str:
    """The larger of two vectors of equal labels; the one that is there, where only one is."""
    return f"(({one}) >= ({other}) or ({other}) or ({one}))"


def glob(pattern: str) -> str:
    """A shell pattern as Prometheus's regular expressions (RE2, anchored at both ends) write it."""
    found, at = "", 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        end = pattern.find("]", at + 1 + pattern.startswith("!", at)) if letter == "[" else -1
        if letter == "*":
            found += ".*"
        elif letter == "?":
            found += "."
        elif end > 0:
            found += _letters(pattern[at:end])
            at = end + 1
        else:
            found += re.escape(letter)
    return found


def _letters(inside: str) -> str:
    """What stands in brackets, as `fnmatch` reads it: a range from a later letter to an earlier one holds none."""
    negated, inside = inside.startswith("!"), inside.removeprefix("!")
    found, at = "", 0
    while at < len(inside):
        first, last = inside[at], inside[at + 2 : at + 3]
        if inside[at + 1 : at + 2] != "-" or not last:
            found += _escaped(first)
            at += 1
            continue
        if first <= last:
            found += f"{_escaped(first)}-{_escaped(last)}"
        at += 3
    if not found:
        return "." if negated else r"[^\s\S]"
    return f"[{'^' * negated}{found}]"


def _escaped(letter: str) -> str:
    return re.sub(r"[\\\[\]^&~|-]", r"\\\g<0>", letter)


def folded(expression: str) -> str:
    """On one line."""
    return " ".join(expression.split())
