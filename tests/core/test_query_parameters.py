"""Parsing query parameters of reports: periods, filters, sorting and cursors."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.errors import ParameterError
from gpucost.core.query.cost_query import (
    CostQuery,
    check_line_hours,
    etag_of_query,
    parse_sort,
    read_cursor,
    write_cursor,
)
from gpucost.core.query.dimensions import (
    Filter,
    check_parameter_text,
    parse_filter,
    parse_group_by,
    parse_label_filters,
)
from gpucost.core.query.periods import Period, parse_period, parse_window, previous_period, row_end, row_start


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


WEDNESDAY = at("2026-11-25T10:20:30")


@pytest.mark.parametrize(
    ("window", "now", "start", "end"),
    [
        ("24h", WEDNESDAY, "2026-11-24T10:00", "2026-11-25T10:00"),
        ("1h", WEDNESDAY, "2026-11-25T09:00", "2026-11-25T10:00"),
        ("7d", WEDNESDAY, "2026-11-19", "2026-11-25T10:00"),
        ("1d", WEDNESDAY, "2026-11-25", "2026-11-25T10:00"),
        ("today", WEDNESDAY, "2026-11-25", "2026-11-25T10:00"),
        ("today", at("2026-11-25T00:59:59"), "2026-11-25", "2026-11-25T01:00"),
        ("yesterday", WEDNESDAY, "2026-11-24", "2026-11-25"),
        ("week", WEDNESDAY, "2026-11-23", "2026-11-25T10:00"),
        ("week", at("2026-11-29T23:59"), "2026-11-23", "2026-11-29T23:00"),
        ("lastweek", WEDNESDAY, "2026-11-16", "2026-11-23"),
        ("month", WEDNESDAY, "2026-11-01", "2026-11-25T10:00"),
        ("lastmonth", WEDNESDAY, "2026-10-01", "2026-11-01"),
        ("lastmonth", at("2026-01-01T00:00"), "2025-12-01", "2026-01-01"),
        ("lastmonth", at("2028-03-31T12:00"), "2028-02-01", "2028-03-01"),
    ],
)
def test_windows_are_in_utc_and_relative_to_last_ended_hour(window: str, now: datetime, start: str, end: str) -> None:
    assert parse_window(window, now) == Period(at(start), at(end))


def test_date_is_midnight_and_time_zone_is_converted() -> None:
    assert parse_period("2026-11-18", "2026-11-19", None, WEDNESDAY) == Period(at("2026-11-18"), at("2026-11-19"))
    assert parse_period("2026-11-18T01:00:00+01:00", "2026-11-19", None, WEDNESDAY).start == at("2026-11-18")


def test_default_period_is_last_24_ended_hours() -> None:
    period = parse_period(None, None, None, WEDNESDAY)
    assert period == parse_window("24h", WEDNESDAY)
    assert period.parameter == "default"
    assert parse_period(None, None, "24h", WEDNESDAY).parameter == "window"


@pytest.mark.parametrize(
    ("start", "end", "window", "parameter", "says"),
    [
        (None, "2026-11-19", None, "start", "required with end; pass start and end, or window: 24h"),
        ("2026-11-19", None, None, "end", "required with start"),
        ("2026-11-19", "2026-11-19", None, "end", "must be after start"),
        ("2026-11-19", "2026-11-18", None, "end", "must be after start"),
        ("2026-11-19", None, "7d", "start", "is not allowed with window"),
        (None, "2026-11-19", "7d", "end", "is not allowed with window"),
        (None, None, "0d", "window", "allowed: 24h, 7d"),
        (None, None, "99999h", "window", "allowed"),
        (None, None, "٣d", "window", "allowed"),
        (None, None, "7d\n", "window", "allowed"),
        (None, None, "TODAY", "window", "allowed"),
        ("2026-02-30", "2026-11-19", None, "start", "is not a UTC time"),
        ("٢٠٢٦-11-18", "2026-11-19", None, "start", "is not a UTC time"),
        (
            "2026-11-18T00:00:01Z",
            "2026-11-19",
            None,
            "start",
            "is not on a full UTC hour; it is in the hour 2026-11-18T00",
        ),
        ("2026-11-18T00:00:00+00:30", "2026-11-19", None, "start", "is not on a full UTC hour"),
    ],
)
def test_invalid_periods_are_rejected(
    start: str | None, end: str | None, window: str | None, parameter: str, says: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        parse_period(start, end, window, WEDNESDAY)
    assert refused.value.parameter == parameter
    assert says in refused.value.detail


def test_rows_begin_and_end_within_period() -> None:
    period = Period(at("2026-11-28T05:00"), at("2026-12-02T07:00"))
    moment = at("2026-11-30T13:00")
    bounds = {}
    for granularity in ("hour", "day", "week", "month", "total"):
        begin = row_start(moment, granularity, period)
        bounds[granularity] = (f"{begin:%m-%dT%H}", f"{row_end(begin, granularity, period):%m-%dT%H}")
    assert bounds == {
        "hour": ("11-30T13", "11-30T14"),
        "day": ("11-30T00", "12-01T00"),
        "week": ("11-30T00", "12-02T07"),
        "month": ("11-28T05", "12-01T00"),
        "total": ("11-28T05", "12-02T07"),
    }
    first = row_start(at("2026-11-28T06:00"), "day", period)
    assert (first, row_end(first, "day", period)) == (period.start, at("2026-11-29"))


def test_previous_period_has_same_length_or_is_previous_month() -> None:
    assert previous_period(Period(at("2026-03-01"), at("2026-04-01"))) == Period(at("2026-02-01"), at("2026-03-01"))
    assert previous_period(Period(at("2026-03-02"), at("2026-03-04"))) == Period(at("2026-02-28"), at("2026-03-02"))


@pytest.mark.parametrize(
    ("text", "passes", "fails"),
    [
        ("a,b", ["a", "b"], ["", "c", "a,b", "A"]),
        ("team-*", ["team-", "team-x"], ["team", "", "x-team-"]),
        ("!kube-*", ["a", ""], ["kube-system", "kube-"]),
        ("team-*,!team-x", ["team-y"], ["team-x", "other", ""]),
        ("!team-x,team-*", ["team-y"], ["team-x", "other"]),
        ("*", ["a"], [""]),
        ("!*", [""], ["a"]),
        ("a,!*", ["", "a"], ["b"]),
        (r"\!a", ["!a"], ["a", "b"]),
        (r"!\!a", ["a", "b"], ["!a"]),
        (r"a\,b", ["a,b"], ["a", "b"]),
        (r"a\*", ["a*"], ["a", "ab"]),
        (r"a\\,b", ["a\\", "b"], ["a\\,b"]),
        (r"\**", ["*", "*x"], ["x", ""]),
        ("a!", ["a!"], ["a"]),
        ("cafe\u0301", ["caf\u00e9", "cafe\u0301"], ["cafe"]),
        ("caf\u00e9", ["caf\u00e9", "cafe\u0301"], ["cafe"]),
        (" a", [" a"], ["a"]),
    ],
)
def test_filters(text: str, passes: list[str], fails: list[str]) -> None:
    name_filter = parse_filter("namespace", text)
    assert [name for name in passes if not name_filter.matches(name)] == []
    assert [name for name in fails if name_filter.matches(name)] == []


def escaped(name: str) -> str:
    return "".join(f"\\{character}" if character in "\\,!*" else character for character in name)


@given(
    st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn", "Cf")), min_size=1), min_size=1, max_size=5)
)
def test_every_name_can_be_filtered_by_escaping(names: list[str]) -> None:
    name_filter = parse_filter("workload", ",".join(map(escaped, names)))
    assert all(name_filter.matches(name) for name in names)
    assert not name_filter.matches("".join(names) + "x")


def test_filter_returns_exact_names_it_allows() -> None:
    assert parse_filter("business_unit", "b,a,b").exact_names() == ("a", "b")
    assert parse_filter("business_unit", "b,a,!b").exact_names() == ("a",)
    for text in ("a*", "!a", "a,b*", "caf\u00e9"):
        assert parse_filter("business_unit", text).exact_names() is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("a,,b", "'' is not a name"),
        ("!", "'!' is not a name"),
        ("a*b", "continues after *"),
        ("a**", "continues after *"),
        ("a\\", "ends with a backslash"),
        ("a\\n", "a backslash may only precede"),
        ("a\0b", "U+0000"),
        ("a\u202eb", "U+202E"),
        ("a\u200fb", "U+200F"),
        ("a\ud800", "U+D800"),
        (b"a\xff".decode("utf-8", "replace"), "not percent-encoded UTF-8"),
        ("x" * 4_001, "has 4,001 characters; at most 4,000"),
        (",".join("ab" * 51), "has 102 names"),
    ],
)
def test_invalid_filters_are_rejected(text: str, says: str) -> None:
    text = text if says != "has 102 names" else ",".join(["a"] * 102)
    with pytest.raises(ParameterError) as refused:
        parse_filter("namespace", text)
    assert refused.value.parameter == "namespace"
    assert says in refused.value.detail
    assert len(refused.value.detail) < 200


def test_label_filters_are_grouped_by_label() -> None:
    label_filters = parse_label_filters(r"team:a,env:!dev,team:b\,c", ["team", "env"])
    assert [
        (label_filter.dimension, label_filter.matches("a"), label_filter.matches("dev"), label_filter.matches("b,c"))
        for label_filter in label_filters
    ] == [("label:team", True, False, True), ("label:env", True, False, True)]
    for text, labels in (("team", ["team"]), ("other:a", ["team"]), ("team:a", []), ("team:", ["team"])):
        with pytest.raises(ParameterError) as refused:
            parse_label_filters(text, labels)
        assert refused.value.parameter == "label"


def test_control_characters_are_rejected() -> None:
    check_parameter_text("name", "Zürich 研究 🙂")
    with pytest.raises(ParameterError):
        check_parameter_text("name", "a\x7f")


def test_unknown_group_by_and_sort_are_rejected() -> None:
    assert parse_group_by("label:team, node", ["team"]) == ("label:team", "node")
    with pytest.raises(ParameterError, match="label:<name> for cost_labels of the settings, of which there are none"):
        parse_group_by("label:team", [])
    assert parse_sort("-waste_usd,start", (), "hidden") == (("waste_usd", True), ("start", False))
    for text, idle in (
        ("idle_usd", "hidden"),
        ("namespace", "separate"),
        ("start,-start", "hidden"),
        ("--start", "hidden"),
    ):
        with pytest.raises(ParameterError):
            parse_sort(text, ("business_unit",), idle)  # type: ignore[arg-type]
    assert parse_sort("-cost_usd", (), "separate") == (("cost_usd", True),)


def test_pods_and_nodes_are_limited_to_48_hours() -> None:
    period = Period(at("2026-11-18"), at("2026-11-20"))
    check_line_hours(CostQuery(period, group_by=("pod",)))
    longer = Period(period.start, at("2026-11-20T01:00"))
    for query, parameter in (
        (CostQuery(longer, group_by=("pod",)), "group_by"),
        (CostQuery(longer, filters=(Filter("node", ()),)), "node"),
    ):
        with pytest.raises(ParameterError, match="GET /v1/exports") as refused:
            check_line_hours(query)
        assert refused.value.parameter == parameter


def test_cursor_is_valid_only_for_its_query_figures_and_offset() -> None:
    etag = etag_of_query("question", ["a 1", "b 2"])
    cursor = write_cursor(100, etag)
    assert read_cursor(cursor, etag) == 100
    assert read_cursor(None, etag) == 0
    assert etag == etag_of_query("question", ["b 2", "a 1"])
    for other in (etag_of_query("question", ["a 1", "b 3"]), etag_of_query("another", ["a 1", "b 2"])):
        with pytest.raises(ParameterError, match="of another query, or figures of the period have changed"):
            read_cursor(cursor, other)


@given(st.data())
def test_modified_cursor_is_rejected(data: st.DataObject) -> None:
    etag = etag_of_query("question", [])
    cursor = write_cursor(7, etag)
    position = data.draw(st.integers(0, len(cursor) - 1))
    change = data.draw(st.sampled_from(["", "A", "!", "\n", "=", "é", "a" * 300]))
    changed = cursor[:position] + change + cursor[position + 1 :]
    if changed != cursor:
        with pytest.raises(ParameterError) as refused:
            read_cursor(changed, etag)
        assert refused.value.parameter == "cursor"


@pytest.mark.parametrize("cursor", ["", "W10", "bnVsbA", "WzEsIDJd", "[" * 190])
def test_malformed_cursor_is_rejected(cursor: str) -> None:
    with pytest.raises(ParameterError, match="is invalid; pass the cursor"):
        read_cursor(cursor, "etag")
