"""Parses OpenCost's parameters: the filter language, windows and steps.

Sources: OpenCost's core/pkg/filter/ast (version 2 of the filters) and core/pkg/opencost/window.go.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from gpucost.core.errors import ParameterError
from gpucost.core.hours import DAY, HOUR, MAX_YEAR, MIN_YEAR, floor_day, floor_hour, format_timestamp, parse_timestamp
from gpucost.core.query.dimensions import check_parameter_text
from gpucost.features.opencost.properties import LABEL_ALIASES, MISSING_VALUE, WORKLOAD_KINDS, Properties, find_label

# Parses OpenCost's filter language, version 2 (core/pkg/filter/ast): `namespace:"a","b"+controllerKind!:"job"`.
#
#     filter     := element (op element)*           on each level either only '+' (and) or only '|' (or)
#     element    := comparison | '(' filter ')'
#     comparison := field op '"' text '"' (',' '"' text '"')*
#     field      := cluster | node | namespace | controllerName | controllerKind | pod | label[name] | the aliases
#                   controller, deployment, statefulset, daemonset and job of OpenCost's UI
#     op         := ':' | '!:' | '~:' | '!~:' | '<~:' | '!<~:' | '~>:' | '!~>:'
#
# A comparison with several values matches any of them; a negated one matches none of them. `~:` is "contains", `<~:`
# "starts with", `~>:` "ends with". A `+` that was not percent-encoded arrives as a space, so a space means `+`, too.
#
# The parameters of version 1 (core/pkg/util/filterutil) are lists, which match any of their values; `*` at the end of a
# value matches any rest: `filterNamespaces=bu-*,chat`, `filterControllers=deployment:web`, `filterLabels=team:a`.

Predicate = Callable[[Any], bool]
Fields = Mapping[str, str]
"""The attribute that each field of the filter language reads."""
MAX_LENGTH = 4000
_MAX_DEPTH = 20
ALLOCATION_FIELDS = {
    "cluster": "cluster",
    "node": "node",
    "namespace": "namespace",
    "controllerName": "controller",
    "controller": "controller",
    "controllerKind": "controller_kind",
    "pod": "pod",
}
_UNSUPPORTED_FIELDS = {
    "container",
    "provider",
    "service",
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


_FIELDS_BY_LIST = {
    "filterClusters": "cluster",
    "filterNodes": "node",
    "filterNamespaces": "namespace",
    "filterControllerKinds": "controllerKind",
    "filterPods": "pod",
    "filterTypes": "type",
    "filterNames": "name",
    "filterCategories": "category",
    "filterProviders": "provider",
    "filterProviderIDs": "providerID",
}
_CASELESS_FIELDS = {"controllerKind", "type", "assetType"}
_LABELS_BY_LIST = {f"filter{alias.capitalize()}s": label for alias, label in LABEL_ALIASES.items()}
_LABEL_LISTS = ("filterControllers", "filterLabels", *_LABELS_BY_LIST)


class Filter(Struct, frozen=True):
    """A parsed filter."""

    matches: Predicate = lambda _: True
    property_names: frozenset[str] = frozenset()
    """Fields of `Properties` that the filter reads."""
    includes_cluster: Callable[[str], bool] = lambda _: True
    """Whether the filter can match anything of a cluster. It is exact for filters that read only the cluster."""


def parse_filter(text: str, cost_labels: Sequence[str], fields: Fields = ALLOCATION_FIELDS) -> Filter:
    """Parse a filter; "" matches everything.

    Args:
        text: the parameter `filter`.
        cost_labels: the labels that the ledger stores.
        fields: what the filter can read.

    Raises:
        ValueError: a syntax error, or a field that the ledger does not store. The message says what is allowed.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"is longer than {MAX_LENGTH} characters. Shorten it.")
    if not text.strip():
        return Filter()
    parser = _Parser(_tokens(text), cost_labels, fields)
    matches = parser.parse_group(0)
    return _of_properties(matches, frozenset(parser.fields))


def parse_list_filters(
    parameters: Mapping[str, str], cost_labels: Sequence[str], fields: Fields = ALLOCATION_FIELDS
) -> list[Filter]:
    """Parse the filter parameters of version 1. Empty ones match everything, as in OpenCost.

    Args:
        parameters: all parameters; others than these filters are not read.
        cost_labels: the labels that the ledger stores.
        fields: what the filters can read.

    Raises:
        ParameterError: a property that the ledger does not store.
    """
    allowed = [name for name, field in _FIELDS_BY_LIST.items() if field in fields]
    allowed += _LABEL_LISTS if "controllerName" in fields else ()
    filters = []
    for name, text in parameters.items():
        patterns = [pattern.strip() for pattern in text.split(",") if pattern.strip()]
        if not patterns or not name.startswith("filter") or name == "filter":
            continue
        if name not in allowed:
            raise ParameterError(name[:60], f"cannot be filtered by. Leave it out; allowed: {', '.join(allowed)}")
        check_parameter_text(name, text)
        try:
            filters.append(_list_filter(name, patterns, cost_labels, fields))
        except ValueError as error:
            raise ParameterError(name, str(error)) from None
    return filters


def all_of(filters: Sequence[Filter]) -> Filter:
    """Return the filter that matches if all filters match."""
    names = frozenset[str]().union(*(each.property_names for each in filters))
    return Filter(
        lambda properties: all(each.matches(properties) for each in filters),
        names,
        lambda cluster: all(each.includes_cluster(cluster) for each in filters),
    )


def _of_properties(matches: Predicate, names: frozenset[str]) -> Filter:
    if names == {"cluster"}:
        return Filter(matches, names, lambda cluster: matches(Properties(cluster)))
    return Filter(matches, names)


def _list_filter(name: str, patterns: Sequence[str], cost_labels: Sequence[str], fields: Fields) -> Filter:
    if name == "filterControllers":
        kinds_and_names = [pattern.rpartition(":") for pattern in patterns]
        return Filter(
            lambda properties: any(
                kind.lower() in ("", properties.controller_kind) and _matches_prefix(properties.controller, controller)
                for kind, _, controller in kinds_and_names
            ),
            frozenset({"controller", "controller_kind"}),
        )
    if name in ("filterLabels", *_LABELS_BY_LIST):
        labels = [
            (find_label(_LABELS_BY_LIST.get(name) or pattern.partition(":")[0], cost_labels), pattern)
            for pattern in patterns
        ]
        pairs = [
            (label, pattern if name in _LABELS_BY_LIST else pattern.partition(":")[2]) for label, pattern in labels
        ]
        return Filter(
            lambda properties: any(_matches_prefix(properties.label(label) or "", pattern) for label, pattern in pairs),
            frozenset({"labels"}),
        )
    attribute = fields[_FIELDS_BY_LIST[name]]
    if _FIELDS_BY_LIST[name] in _CASELESS_FIELDS:
        patterns = [pattern.lower() for pattern in patterns]
    return _of_properties(
        lambda properties: any(_matches_prefix(getattr(properties, attribute), pattern) for pattern in patterns),
        frozenset({attribute}),
    )


def _matches_prefix(actual: str, expected: str) -> bool:
    if expected.endswith("*"):
        return actual.startswith(expected.removesuffix("*"))
    return actual == ("" if expected == MISSING_VALUE else expected)


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

    def __init__(self, tokens: list[tuple[str, str]], cost_labels: Sequence[str], fields: Fields) -> None:
        self._tokens = tokens
        self._fields = fields
        self._is_of_pods = "pod" in fields
        self._allowed = ", ".join([*fields, *(["label[name]"] if self._is_of_pods else [])])
        self._position = 0
        self._cost_labels = cost_labels
        self.fields: set[str] = set()

    def parse_group(self, depth: int) -> Predicate:
        if depth > _MAX_DEPTH:
            raise ValueError(f"has more than {_MAX_DEPTH} nested parentheses.")
        parts, operators = [self._parse_element(depth)], set()
        while (token := self._peek()) in (("mark", "+"), ("mark", "|"), ("mark", "(")) or token[0] == "word":
            is_spaced = token not in (("mark", "+"), ("mark", "|"))
            operators.add("+" if is_spaced else token[1])
            if len(operators) > 1:
                raise ValueError("mixes + and | on one level. Put one of them in parentheses.")
            self._position += not is_spaced
            parts.append(self._parse_element(depth))
        expected_end = ("mark", ")") if depth else ("end", "")
        if self._peek() != expected_end:
            raise ValueError(f"expected {expected_end[1] or 'the end, + or |'} but got {self._peek()[1]!r}")
        self._position += 1
        if len(parts) == 1:
            return parts[0]
        join = all if "+" in operators else any
        return lambda properties: join(part(properties) for part in parts)

    def _parse_element(self, depth: int) -> Predicate:
        if self._peek() == ("mark", "("):
            self._position += 1
            return self.parse_group(depth + 1)
        return self._parse_comparison()

    def _parse_comparison(self) -> Predicate:
        name = self._take("word", f"a field: {self._allowed}")
        read_property = self._parse_field(name)
        operator = self._take("op", "one of : !: ~: !~: <~: !<~: ~>: !~>:")
        texts = [self._take("text", 'a value in "quotes"')]
        while self._peek() == ("mark", ","):
            self._position += 1
            texts.append(self._take("text", 'a value in "quotes"'))
        matches = _OPERATORS[operator.lstrip("!")]
        expected_texts = ["" if value == MISSING_VALUE else value for value in texts]
        if name in _CASELESS_FIELDS:
            expected_texts = [value.lower() for value in expected_texts]
        negated = operator.startswith("!")
        return lambda properties: any(matches(read_property(properties), value) for value in expected_texts) != negated

    def _parse_field(self, name: str) -> Callable[[Any], str]:
        if name == "label" and self._is_of_pods:
            if self._peek()[0] != "key":
                raise ValueError("label needs a name, for example label[app].")
            label = find_label(self._take("key", "a name"), self._cost_labels)
            self.fields.add("labels")
            return lambda properties: properties.label(label) or ""
        if name in WORKLOAD_KINDS and self._is_of_pods:
            self.fields |= {"controller", "controller_kind"}
            return lambda properties: properties.controller if properties.controller_kind == name else ""
        if name in _UNSUPPORTED_FIELDS and name not in self._fields:
            raise ValueError(f"cannot filter by {name}; allowed: {self._allowed}.")
        if name not in self._fields:
            raise ValueError(f"{name!r} is not a field; allowed: {self._allowed}.")
        attribute = self._fields[name]
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


# Parses OpenCost's windows and steps (core/pkg/opencost/window.go), in full UTC hours.

_UNITS = {"m": timedelta(minutes=1), "h": HOUR, "d": DAY, "w": 7 * DAY}
_DURATION = re.compile(r"([0-9]{1,6})([mhdw])")
_NAMED_STEPS = {"hour": HOUR, "day": DAY, "week": 7 * DAY, "month": DAY, "quarter": DAY}
"""OpenCost's names of steps. Months and quarters are computed from days."""
_UNIX_TIMES = re.compile(r"([0-9]{1,12})[,-]([0-9]{1,12})")
NAMED_WINDOWS = ("today", "yesterday", "week", "lastweek", "month", "lastmonth")
WINDOW_FORMATS = f"{', '.join(NAMED_WINDOWS)}, a duration like 12h or 7d, or two times with a comma"
_SECOND = timedelta(seconds=1)


def parse_window(text: str, now: datetime, published_until: Callable[[], datetime]) -> tuple[datetime, datetime]:
    """Parse a window and return its start and end.

    As in OpenCost, `7d` is today and the six previous days, and weeks begin on Sunday. No window contains hours that
    are not published yet, because rates would be too low: it ends with the newest published hour, and `12h` is the
    newest twelve. If no hour of the window is published, its end is its start.

    Args:
        text: of one of `WINDOW_FORMATS`.
        now: UTC.
        published_until: returns the end of the newest published hour.

    Raises:
        ValueError: unknown format, empty window, or not full hours. The message says what is allowed.
    """
    match = _DURATION.fullmatch(text)
    if match and match[2] in "mh":
        end = published_until()
        return _begin(text, end, now), end
    start, end = _named_window(text, now) or (_days(text, now) if match else _start_and_end(text))
    if not start < end:
        raise ValueError(f"{text!r} must end after its start.")
    if end > floor_hour(now) - HOUR:
        end = max(start, min(end, published_until()))
    return start, end


def parse_duration(text: str) -> timedelta:
    """Parse a duration of full hours: `1h`, `1d`, `1w`, `120m`.

    Raises:
        ValueError: not a duration of full hours. The message says what is allowed.
    """
    match = _DURATION.fullmatch(text)
    duration = int(match[1]) * _UNITS[match[2]] if match else timedelta()
    if duration < HOUR or duration % HOUR:
        raise ValueError(f"{text!r} is not a duration of full hours. Use for example 1h, 1d or 1w.")
    return duration


def parse_step(text: str) -> timedelta:
    """Parse a step: a duration of full hours, or a name such as `day`.

    Raises:
        ValueError: neither. The message says what is allowed.
    """
    return _NAMED_STEPS.get(text.strip().lower()) or parse_duration(text)


def _named_window(text: str, now: datetime) -> tuple[datetime, datetime] | None:
    today, current_hour_end = floor_day(now), floor_hour(now) + HOUR
    sunday = start_of_week(today)
    month = today.replace(day=1)
    windows = {
        "today": (today, today + DAY),
        "yesterday": (today - DAY, today),
        "week": (sunday, current_hour_end),
        "lastweek": (sunday - 7 * DAY, sunday),
        "month": (month, current_hour_end),
        "lastmonth": ((month - DAY).replace(day=1), month),
    }
    return windows.get(text)


def start_of_week(day: datetime) -> datetime:
    """Return the Sunday on or before a day."""
    return day - DAY * ((day.weekday() + 1) % 7)


def _days(text: str, now: datetime) -> tuple[datetime, datetime]:
    end = floor_day(now) + DAY
    return _begin(text, end, now), end


def _begin(text: str, end: datetime, now: datetime) -> datetime:
    duration = parse_duration(text)
    if duration > now - datetime(MIN_YEAR, 1, 1, tzinfo=UTC):
        raise ValueError(f"{text!r} begins before {MIN_YEAR}")
    return end - duration


def _start_and_end(text: str) -> tuple[datetime, datetime]:
    if match := _UNIX_TIMES.fullmatch(text):
        try:
            first, last = (datetime.fromtimestamp(int(part), UTC) for part in match.groups())
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"{text!r} lies outside the years {MIN_YEAR} to {MAX_YEAR}") from None
        if not MIN_YEAR <= first.year <= last.year <= MAX_YEAR:
            raise ValueError(f"{text!r} lies outside the years {MIN_YEAR} to {MAX_YEAR}")
        return _full_hours(text, first, last)
    begin, comma, end = text.partition(",")
    if not comma:
        raise ValueError(f"{text!r} is not a window; allowed: {WINDOW_FORMATS}.")
    return _full_hours(text, parse_timestamp(begin), parse_timestamp(end))


def _full_hours(text: str, start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """Return a window in full hours.

    OpenCost's UI ends a day at 23:59:59, and the last 24 hours at the current second. The former is the end of the
    hour; the latter moves back to full hours, which does not change its length.
    """
    if end - floor_hour(end) == HOUR - _SECOND:
        end += _SECOND
    first, last = floor_hour(start), floor_hour(end)
    if start - first != end - last:
        last += HOUR if end > last else timedelta()
        raise ValueError(
            f"{text!r} does not start and end at full UTC hours. Costs are stored by hour. Use "
            f"{format_timestamp(first)},{format_timestamp(last)}."
        )
    return first, last
