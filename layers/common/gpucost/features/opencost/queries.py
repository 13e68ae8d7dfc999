"""Parses the parameters of OpenCost's routes, as OpenCost's handlers read them (pkg/costmodel/allocation.go, 2026).

Parameters that OpenCost ignores are ignored. Those that it answers and the ledger cannot answer are refused.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from gpucost.core.errors import ParameterError
from gpucost.core.hours import HOUR, floor_day
from gpucost.features.opencost.allocation_service import AllocationQuery, AllocationService, CalendarUnit
from gpucost.features.opencost.assets import ASSET_FIELDS, AssetQuery
from gpucost.features.opencost.filters import all_of, parse_filter, parse_list_filters
from gpucost.features.opencost.properties import parse_aggregate
from gpucost.features.opencost.windows import DAY, parse_step, parse_window

Parsed = TypeVar("Parsed")
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False", "")
BOOLEANS = (*_TRUE, *_FALSE)
"""The booleans of Go (strconv), and an empty parameter."""
_CALENDAR_UNITS: dict[str, CalendarUnit] = {
    "day": "day",
    "week": "week",
    "weeknow": "week",
    "month": "month",
    "quarter": "quarter",
}
ACCUMULATIONS = ("true", "false", "all", "none", "hour", *_CALENDAR_UNITS)


def parse_flag(parameters: Mapping[str, str], name: str) -> bool:
    """Parse a boolean parameter as Go does; false if it was not sent.

    Raises:
        ParameterError: not a boolean.
    """
    text = parameters.get(name, "")
    if text not in BOOLEANS:
        raise ParameterError(name, f"{text[:20]!r} is neither true nor false. Use {name}=true or {name}=false.")
    return text in _TRUE


def parse_allocation_query(parameters: Mapping[str, str], service: AllocationService) -> AllocationQuery:
    """Parse and check the parameters of an allocation query.

    Raises:
        ParameterError: names the wrong parameter and what is allowed.
    """
    for name in ("idleByNode", "includeProportionalAssetResourceCosts"):
        if parse_flag(parameters, name):
            raise ParameterError(name, f"only false is supported. Leave it out, or use {name}=false.")
    include_idle = parse_flag(parameters, "idle" if "idle" in parameters else "includeIdle")
    share_idle = parse_flag(parameters, "shareIdle")
    if share_idle and not include_idle:
        raise ParameterError("shareIdle", "requires includeIdle=true.")
    labels = service.cost_labels()
    start, end = _parse(
        "window", lambda: parse_window(parameters.get("window", ""), service.now(), service.published_until)
    )
    filters = [_parse("filter", lambda: parse_filter(parameters.get("filter", ""), labels))]
    unit = _accumulation(parameters)
    step = end - start
    if unit is None and parameters.get("step"):
        step = _parse("step", lambda: parse_step(parameters["step"]))
    elif unit == "hour" or (unit == "day" and floor_day(start) == start):
        step = HOUR if unit == "hour" else DAY
    return AllocationQuery(
        start,
        end,
        step,
        _parse("aggregate", lambda: parse_aggregate(parameters.get("aggregate", ""), labels)),
        all_of([*filters, *parse_list_filters(parameters, labels)]),
        include_idle,
        share_idle,
        _CALENDAR_UNITS.get(unit or "") if step == end - start else None,
    )


def parse_asset_query(parameters: Mapping[str, str], service: AllocationService) -> AssetQuery:
    """Parse and check the parameters of a query of assets.

    Raises:
        ParameterError: names the wrong parameter and what is allowed.
    """
    start, end = _parse(
        "window", lambda: parse_window(parameters.get("window", ""), service.now(), service.published_until)
    )
    filters = [_parse("filter", lambda: parse_filter(parameters.get("filter", ""), (), ASSET_FIELDS))]
    return AssetQuery(start, end, all_of([*filters, *parse_list_filters(parameters, (), ASSET_FIELDS)]))


def _accumulation(parameters: Mapping[str, str]) -> str | None:
    """Return `hour`, a calendar unit or `all`, or None for sets of the length `step`. `accumulateBy` comes first."""
    name = "accumulateBy" if parameters.get("accumulateBy", "").strip() else "accumulate"
    text = parameters.get(name, "").strip()
    if text in _FALSE or text.lower() == "none":
        return None
    if text in _TRUE or text.lower() == "all":
        return "all"
    if text.lower() not in ("hour", *_CALENDAR_UNITS):
        raise ParameterError(name, f"{text[:20]!r} is not supported; allowed: {', '.join(ACCUMULATIONS)}")
    return text.lower()


def _parse(parameter: str, parse: Callable[[], Parsed]) -> Parsed:
    try:
        return parse()
    except (ValueError, OverflowError) as error:
        raise ParameterError(parameter, str(error)) from None
