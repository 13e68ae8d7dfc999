"""The dimensions by which figures are grouped and filtered, and the filters of reports, one parameter each."""

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from msgspec import Struct

from gpucost.core.errors import ParameterError
from gpucost.core.hour_record import Line, ModelKey
from gpucost.core.ledger import FactKey

# Dimensions, and which of the ledger's records have them.

DIMENSIONS: Final = (
    "business_unit",
    "cluster",
    "namespace",
    "workload_kind",
    "workload",
    "node_pool",
    "instance_type",
    "capacity_type",
    "gpu_model",
    "resource",
    "zone",
    "pod",
    "node",
    "resource_claim",
    "dra_driver",
)
"""In addition, `label:<name>` is a dimension for each of the settings' `cost_labels`."""
LABEL_PREFIX: Final = "label:"
LINE_DIMENSIONS: Final = frozenset({"pod", "node", "resource_claim", "dra_driver"})
"""Dimensions that only an hour's lines have; day facts have the others, too."""
DAY_DIMENSIONS: Final = frozenset({"business_unit", "cluster"})
SUMMARY_DIMENSIONS: Final = DAY_DIMENSIONS | {"namespace"}
MODEL_DIMENSIONS: Final = ("cluster", *ModelKey._fields)
"""The dimensions of costs by model."""

GroupKey = tuple[str, ...]


def parse_group_by(text: str, labels: Sequence[str], names: Sequence[str] = DIMENSIONS) -> tuple[str, ...]:
    """Parse `business_unit,label:team`; "" is no grouping.

    Args:
        text: the parameter.
        labels: the settings' `cost_labels`.
        names: the other dimensions.

    Raises:
        ParameterError: a dimension that is unknown or repeated.
    """
    dimensions: list[str] = []
    allowed = (*names, *(f"{LABEL_PREFIX}{name}" for name in labels))
    for part in (part.strip() for part in text.split(",") if part.strip()):
        if part not in allowed:
            more = (
                ""
                if labels or names is not DIMENSIONS
                else f"; {LABEL_PREFIX}<name> for cost_labels of the settings, of which there are none"
            )
            raise ParameterError("group_by", f"{part!r} is not a dimension; allowed: {', '.join(allowed)}{more}")
        if part in dimensions:
            raise ParameterError("group_by", f"{part!r} is named twice; name it once")
        dimensions.append(part)
    return tuple(dimensions)


def key_of_names(dimensions: Sequence[str], cluster: str) -> Callable[[tuple[str, str]], GroupKey]:
    """Return a function that reads dimensions of an hour's summary from a business unit and a namespace."""
    return cache(
        lambda names: tuple(
            {"cluster": cluster, "business_unit": names[0], "namespace": names[1]}[name] for name in dimensions
        )
    )


def key_of_line(dimensions: Sequence[str], cluster: str) -> Callable[[Line], GroupKey]:
    """Return a function that reads dimensions from a line; a missing label is ""."""
    return lambda line: tuple(
        cluster
        if name == "cluster"
        else line.labels.get(name[len(LABEL_PREFIX) :], "")
        if name.startswith(LABEL_PREFIX)
        else getattr(line, name)
        for name in dimensions
    )


def key_of_fact(dimensions: Sequence[str], cluster: str) -> Callable[[FactKey], GroupKey]:
    """Return a function that reads dimensions from a day fact; a missing label is ""."""
    positions = {name: position for position, name in enumerate(FactKey._fields)}

    def reader_of(name: str) -> Callable[[FactKey], str]:
        if name == "cluster":
            return lambda _: cluster
        if name.startswith(LABEL_PREFIX):
            label = name[len(LABEL_PREFIX) :]
            return lambda fact: next((value for label_name, value in fact.labels if label_name == label), "")
        position = positions[name]
        return lambda fact: str(fact[position])

    readers = [reader_of(name) for name in dimensions]
    return lambda fact: tuple(reader(fact) for reader in readers)


# Filters of reports, one parameter per dimension.
#
# `namespace=bu-a,bu-b` matches either name, `namespace=team-*` names with a prefix, `namespace=!kube-*` all other
# names, `namespace=team-*,!team-x` names with the prefix except one. `*` alone matches any name, and `!*` matches rows
# without a name: `gpu,!*` is `gpu` or none. A backslash escapes a character: `\,` `\!` `\*` `\\`. Names are compared in
# Unicode's NFC, so that two spellings of one name are equal. Labels share one parameter, `label=team:search,env:!dev`.

MAX_FILTER_LENGTH = 4_000
"""The most characters of a filter."""
MAX_NAMES = 100
"""The most names in a filter."""
_REPLACEMENT_CHARACTER = "\ufffd"
"""The replacement character of bytes in a URL that are not UTF-8."""
_DIRECTION_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
"""Control characters that change the direction of text."""


class Pattern(Struct, frozen=True):
    """One name of a filter, or a prefix of names."""

    text: str
    is_prefix: bool = False

    def matches(self, name: str) -> bool:
        """Whether a name matches; `*` alone matches every name except the empty one."""
        if not self.is_prefix:
            return name == self.text
        return name.startswith(self.text) and bool(name)


class Filter(Struct, frozen=True):
    """A filter on one dimension: any of the allowed patterns, if there are any, and none of the excluded ones."""

    dimension: str
    allowed: tuple[Pattern, ...]
    excluded: tuple[Pattern, ...] = ()

    def matches(self, name: str) -> bool:
        """Whether a name passes the filter."""
        name = _normalize(name)
        if any(pattern.matches(name) for pattern in self.excluded):
            return False
        return not self.allowed or any(pattern.matches(name) for pattern in self.allowed)

    def exact_names(self) -> tuple[str, ...] | None:
        """Return the names that can pass, if the filter lists them; None if any other name may pass."""
        if not self.allowed or any(pattern.is_prefix or not pattern.text.isascii() for pattern in self.allowed):
            return None
        return tuple(sorted({pattern.text for pattern in self.allowed if self.matches(pattern.text)}))


def parse_filter(dimension: str, text: str, parameter: str | None = None) -> Filter:
    """Parse the filter of a dimension.

    Raises:
        ParameterError: empty, too long, too many names, a trailing backslash, or invalid characters.
    """
    name = parameter or dimension
    allowed: list[Pattern] = []
    excluded: list[Pattern] = []
    for part in _split_names(name, text):
        is_excluded, pattern = _parse_pattern(name, part)
        (excluded if is_excluded else allowed).append(pattern)
    return Filter(dimension, tuple(allowed), tuple(excluded))


def parse_label_filters(text: str, labels: Sequence[str]) -> list[Filter]:
    """Parse `team:search,team:vision,env:!dev` into one filter for each label.

    Raises:
        ParameterError: as `parse_filter`, or for a label that is not in the settings' `cost_labels`.
    """
    texts_by_label: dict[str, list[str]] = {}
    for part in _split_names("label", text):
        label, colon, value = part.partition(":")
        if not colon or label not in labels:
            allowed = f"allowed: {', '.join(labels)}" if labels else "the settings name no cost_labels"
            raise ParameterError("label", f"{_quote(part)} does not begin with a label's name and a colon; {allowed}")
        texts_by_label.setdefault(label, []).append(value)
    return [
        parse_filter(f"{LABEL_PREFIX}{label}", ",".join(values), "label") for label, values in texts_by_label.items()
    ]


def matches_all(filters: Iterable[Filter], dimensions: Sequence[str], key: Sequence[str]) -> bool:
    """Whether the values of dimensions pass all filters."""
    values = dict(zip(dimensions, key, strict=True))
    return all(dimension_filter.matches(values[dimension_filter.dimension]) for dimension_filter in filters)


def check_parameter_text(parameter: str, text: str, longest: int = MAX_FILTER_LENGTH) -> None:
    """Reject text that cannot be a name before it appears in any message.

    Raises:
        ParameterError: too long, not UTF-8, or with control characters, direction marks or lone surrogates.
    """
    if len(text) > longest:
        raise ParameterError(parameter, f"has {len(text):,} characters; at most {longest:,} are allowed")
    if _REPLACEMENT_CHARACTER in text:
        raise ParameterError(parameter, "is not percent-encoded UTF-8")
    invalid = next(
        (
            character
            for character in text
            if character in _DIRECTION_MARKS or unicodedata.category(character) in {"Cc", "Cs", "Cn"}
        ),
        None,
    )
    if invalid is not None:
        raise ParameterError(parameter, f"has the character U+{ord(invalid):04X}, which names cannot have")


def filters_as_lists(filters: Iterable[Filter]) -> Mapping[str, object]:
    """Return filters as plain values, for ETags."""
    return {
        dimension_filter.dimension: [
            [[pattern.text, pattern.is_prefix] for pattern in patterns]
            for patterns in (dimension_filter.allowed, dimension_filter.excluded)
        ]
        for dimension_filter in filters
    }


def _split_names(parameter: str, text: str) -> list[str]:
    """Split at commas without a backslash before them; backslashes are kept."""
    check_parameter_text(parameter, text)
    if not text:
        raise ParameterError(parameter, "is empty; pass names, or omit the parameter (!* matches rows without a name)")
    parts, current, escaped = [], "", False
    for character in text:
        if character == "," and not escaped:
            parts.append(current)
            current = ""
        else:
            current += character
        escaped = character == "\\" and not escaped
    if escaped:
        raise ParameterError(parameter, r"ends with a backslash; write \\ for a literal backslash")
    parts.append(current)
    if len(parts) > MAX_NAMES:
        raise ParameterError(parameter, f"has {len(parts)} names; at most {MAX_NAMES} are allowed")
    return parts


def _parse_pattern(parameter: str, part: str) -> tuple[bool, Pattern]:
    is_excluded = part.startswith("!")
    text, is_prefix, escaped = "", False, False
    for character in part[1:] if is_excluded else part:
        if is_prefix:
            raise ParameterError(parameter, rf"{_quote(part)} continues after *; write \* for a literal asterisk")
        if escaped:
            if character not in ",!*\\":
                raise ParameterError(parameter, rf"{_quote(part)}: a backslash may only precede , ! * and \ itself")
            text, escaped = text + character, False
        elif character == "\\":
            escaped = True
        elif character == "*":
            is_prefix = True
        else:
            text += character
    if not text and not is_prefix:
        raise ParameterError(parameter, f"{_quote(part)} is not a name; !* matches rows without a name")
    if is_excluded and is_prefix and not text:
        return False, Pattern("")  # `!*` matches the empty name, also in addition to other names
    return is_excluded, Pattern(_normalize(text), is_prefix)


def _normalize(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _quote(part: str) -> str:
    return repr(part if len(part) <= 60 else part[:60] + "…")  # noqa: PLR2004 - enough to recognize it
