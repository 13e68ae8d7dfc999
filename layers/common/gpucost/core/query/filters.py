r"""Filters of reports, one parameter per dimension.

`namespace=bu-a,bu-b` is either of the two, `namespace=team-*` what begins so, `namespace=!kube-*` all but that,
`namespace=team-*,!team-x` what begins so but that one. `*` alone is any name, and `!*` is what has none: `gpu,!*` is
`gpu` or none. A backslash takes the meaning off a character: `\,` `\!` `\*` `\\`. Names are compared in Unicode's form
NFC, so that two ways to write one name are one name. Labels are in one parameter, `label=team:search,env:!dev`.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpucost.core.errors import ParameterError
from gpucost.core.query.dimensions import LABEL_PREFIX

MAX_FILTER_LENGTH = 4_000
"""Characters of a filter."""
MAX_NAMES = 100
"""Names in a filter."""
_NOT_UTF8 = "\ufffd"
"""What stands where bytes of an address are no text."""
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
"""Marks that change the order of what people read."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One name of a filter, or how names begin."""

    text: str
    is_prefix: bool = False

    def matches(self, name: str) -> bool:
        """Whether it is meant; `*` alone means every name but none at all."""
        if not self.is_prefix:
            return name == self.text
        return name.startswith(self.text) and bool(name)


@dataclass(frozen=True, slots=True)
class Filter:
    """What one dimension is to be: any of some patterns, where there are any, and none of others."""

    dimension: str
    allowed: tuple[Pattern, ...]
    excluded: tuple[Pattern, ...] = ()

    def matches(self, name: str) -> bool:
        """Whether a name passes."""
        name = _normal(name)
        if any(pattern.matches(name) for pattern in self.excluded):
            return False
        return not self.allowed or any(pattern.matches(name) for pattern in self.allowed)

    def exact_names(self) -> tuple[str, ...] | None:
        """The names that can pass, where the filter names them all; None where that cannot be told from it."""
        if not self.allowed or any(pattern.is_prefix or not pattern.text.isascii() for pattern in self.allowed):
            return None
        return tuple(sorted({pattern.text for pattern in self.allowed if self.matches(pattern.text)}))


def parse_filter(dimension: str, text: str, parameter: str | None = None) -> Filter:
    """Read the filter of a dimension.

    Raises:
        ParameterError: empty, too long, too many names, a backslash at its end, or characters that no name has.
    """
    name = parameter or dimension
    allowed: list[Pattern] = []
    refused: list[Pattern] = []
    for part in _parts(name, text):
        is_refused, pattern = _pattern(name, part)
        (refused if is_refused else allowed).append(pattern)
    return Filter(dimension, tuple(allowed), tuple(refused))


def parse_label_filters(text: str, labels: Sequence[str]) -> list[Filter]:
    """Read `team:search,team:vision,env:!dev`: what is said of one label goes together.

    Raises:
        ParameterError: as `parse_filter`; or a label that is not one of the settings' `cost_labels`.
    """
    texts_by_label: dict[str, list[str]] = {}
    for part in _parts("label", text):
        label, colon, value = part.partition(":")
        if not colon or label not in labels:
            allowed = f"allowed: {', '.join(labels)}" if labels else "the settings name no cost_labels"
            raise ParameterError("label", f"{_shown(part)} does not begin with a label's name and a colon; {allowed}")
        texts_by_label.setdefault(label, []).append(value)
    return [parse_filter(f"{LABEL_PREFIX}{label}", ",".join(values), "label") for label, values in texts_by_label.items()]


def matches_all(filters: Iterable[Filter], dimensions: Sequence[str], key: Sequence[str]) -> bool:
    """Whether the values of dimensions pass all filters on them."""
    values = dict(zip(dimensions, key, strict=True))
    return all(dimension_filter.matches(values[dimension_filter.dimension]) for dimension_filter in filters)


def check_text(parameter: str, text: str, longest: int = MAX_FILTER_LENGTH) -> None:
    """Refuse what no name holds, before anything repeats it.

    Raises:
        ParameterError: too long; not UTF-8; or control characters, marks that reverse what is read, or half a
            character in it.
    """
    if len(text) > longest:
        raise ParameterError(parameter, f"has {len(text):,} characters; at most {longest:,} are taken")
    if _NOT_UTF8 in text:
        raise ParameterError(parameter, "is not UTF-8, percent-encoded")
    invalid = next((character for character in text if character in _BIDI or unicodedata.category(character) in {"Cc", "Cs", "Cn"}), None)
    if invalid is not None:
        raise ParameterError(parameter, f"holds the character U+{ord(invalid):04X}, which no name has")


def filters_as_lists(filters: Iterable[Filter]) -> Mapping[str, object]:
    """Filters as plain values, for fingerprints."""
    return {
        dimension_filter.dimension: [[[pattern.text, pattern.is_prefix] for pattern in patterns] for patterns in (dimension_filter.allowed, dimension_filter.excluded)]
        for dimension_filter in filters
    }


def _parts(parameter: str, text: str) -> list[str]:
    """Split at commas that no backslash stands before; the backslashes stay."""
    check_text(parameter, text)
    if not text:
        raise ParameterError(parameter, "is empty; name values, or leave the parameter out (!* is: without a name)")
    parts, current, escaped = [], "", False
    for character in text:
        if character == "," and not escaped:
            parts.append(current)
            current = ""
        else:
            current += character
        escaped = character == "\\" and not escaped
    if escaped:
        raise ParameterError(parameter, r"ends in a backslash; one that is meant is written \\")
    parts.append(current)
    if len(parts) > MAX_NAMES:
        raise ParameterError(parameter, f"names {len(parts)} values; at most {MAX_NAMES} are taken")
    return parts


def _pattern(parameter: str, part: str) -> tuple[bool, Pattern]:
    is_refused = part.startswith("!")
    text, is_prefix, escaped = "", False, False
    for character in part[1:] if is_refused else part:
        if is_prefix:
            raise ParameterError(parameter, rf"{_shown(part)} goes on after its *; one that is meant is written \*")
        if escaped:
            if character not in ",!*\\":
                raise ParameterError(parameter, rf"{_shown(part)}: a backslash stands only before , ! * and \ itself")
            text, escaped = text + character, False
        elif character == "\\":
            escaped = True
        elif character == "*":
            is_prefix = True
        else:
            text += character
    if not text and not is_prefix:
        raise ParameterError(parameter, f"{_shown(part)} is no name; !* is: without a name")
    if is_refused and is_prefix and not text:
        return False, Pattern("")  # not any name is: none, and can stand beside names
    return is_refused, Pattern(_normal(text), is_prefix)


def _normal(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _shown(part: str) -> str:
    return repr(part if len(part) <= 60 else part[:60] + "…")  # noqa: PLR2004 - enough to find it by
