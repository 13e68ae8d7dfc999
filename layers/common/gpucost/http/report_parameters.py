"""Query and path parameters of reports, with their descriptions for the OpenAPI document."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter
from inspect import signature as signature_of
from typing import Annotated, Any, Literal, TypeVar, cast
from urllib.parse import unquote

from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from pydantic import AfterValidator

from gpucost.core.query.cost_query import MAX_PAGE_SIZE, IdlePolicy
from gpucost.core.query.dimensions import DIMENSIONS, LINE_DIMENSIONS, MODEL_DIMENSIONS
from gpucost.core.query.periods import Granularity
from gpucost.reports.pages import MAX_LINES_PER_PAGE, MAX_NODES_PER_PAGE
from gpucost.reports.waste import MAX_TOP_WASTERS

Route = TypeVar("Route", bound=Callable[..., Any])
_FILTER_SYNTAX = (
    "comma-separated values match any of them; ! before a value excludes it; * at the end matches a prefix; !* matches "
    r"an empty name; escape a comma, !, * or backslash with a backslash"
)

Start = Annotated[
    str | None,
    Query(
        description="Start of the period: a full UTC hour, or a UTC day. Pass it with end, or pass window instead. "
        "Without start, end and window, the period is that of window=24h, and default_window says so",
        examples=["2026-11-18T00:00:00Z", "2026-11-18"],
    ),
]
End = Annotated[
    str | None,
    Query(
        description="End of the period, exclusive: a full UTC hour, or a UTC day",
        examples=["2026-11-19T00:00:00Z", "2026-11-19"],
    ),
]
Window = Annotated[
    str | None,
    Query(
        description="Period relative to now, instead of start and end: 24h (ended hours, without the newest one "
        "until all clusters have published it), 7d (UTC days, including these hours of today), today, yesterday, "
        "week, lastweek (from Monday), month, lastmonth",
        examples=["7d", "24h", "lastmonth"],
    ),
]
RowGranularity = Annotated[
    Granularity,
    Query(
        description="Length of each row's period: hour (up to 35 days), UTC day (100 days), week from Monday "
        "(371 days), month (731 days), or total (371 days). The first and last row are cut at the period's limits"
    ),
]
GroupBy = Annotated[
    str,
    Query(
        description="Comma-separated dimensions: "
        f"{', '.join(name for name in DIMENSIONS if name not in LINE_DIMENSIONS)}, label:<name> of the settings' "
        "cost_labels; pod, node, resource_claim and dra_driver for at most 48 hours. Default: one row per period",
        examples=["business_unit", "business_unit,namespace", "label:team,gpu_model"],
    ),
]
Cluster = Annotated[
    str | None,
    Query(description=f"Only these clusters, also in the totals: {_FILTER_SYNTAX}", examples=["demo", "prod-*"]),
]
BusinessUnit = Annotated[
    str | None, Query(description=f"Only rows of these business units: {_FILTER_SYNTAX}", examples=["research"])
]
ModelGroupBy = Annotated[
    str,
    Query(
        description=f"Comma-separated dimensions: {', '.join(MODEL_DIMENSIONS)}. Default: one row per period",
        examples=["model", "business_unit,model", "consumer,model"],
    ),
]
ModelSort = Annotated[
    str,
    Query(
        description="Comma-separated figures, dimensions of group_by, or start; a leading - for descending order. "
        "Unknown figures come last",
        examples=["-usd_per_million_tokens"],
    ),
]
Idle = Annotated[
    IdlePolicy,
    Query(
        description="How to report idle costs (unallocated + stranded + unobserved + host + residual): hidden shows "
        "them in the totals only; separate adds a row of kind idle to every period; shared-by-allocation and "
        "shared-evenly share them among the groups of each cluster and period. All except hidden add "
        "idle_gpu_hours, idle_usd and cost_usd (allocated + idle) to every row"
    ),
]
Sort = Annotated[
    str,
    Query(
        description="Comma-separated figures, dimensions of group_by, or start; a leading - sorts in descending order. "
        "Default: time, then names",
        examples=["-waste_usd", "start,-allocated_usd"],
    ),
]
Limit = Annotated[int, Query(description="Maximum number of rows per page", ge=1, le=MAX_PAGE_SIZE, examples=[100])]
NodeLimit = Annotated[
    int, Query(description="Maximum number of rows per page", ge=1, le=MAX_NODES_PER_PAGE, examples=[100])
]
LineLimit = Annotated[
    int, Query(description="Maximum number of rows per page", ge=1, le=MAX_LINES_PER_PAGE, examples=[100])
]
TopWasterLimit = Annotated[
    int, Query(description="Maximum number of workloads per page", ge=1, le=MAX_TOP_WASTERS, examples=[20])
]
Cursor = Annotated[
    str | None,
    Query(
        description="Cursor from the previous page. Send it with the same parameters", examples=["WzEwMCwgIjNmYTki…"]
    ),
]
Format = Annotated[
    Literal["json", "csv", "jsonl"],
    Query(
        description="csv downloads the rows only. jsonl has one JSON object per line: first the response without rows, "
        "then each row. Both return the next page's cursor in the header X-Next-Cursor"
    ),
]
UnitName = Annotated[
    str,
    AfterValidator(unquote),
    Path(
        description="Name of the business unit, percent-encoded. API Gateway does not support / and ? in a path "
        "parameter. For names with these characters, use /v1/costs with the filter business_unit",
        examples=["research"],
    ),
]
WorkloadSort = Annotated[
    str,
    Query(
        description="Comma-separated figures, or cluster, namespace, workload_kind, workload; a leading - sorts in "
        "descending order",
        examples=["-waste_usd"],
    ),
]


def _filter(rows: str, *examples: str) -> Any:
    return Annotated[str | None, Query(description=f"Only rows of {rows}: {_FILTER_SYNTAX}", examples=[*examples])]


_FILTERS: Mapping[str, Any] = {
    "business_unit": BusinessUnit,
    "namespace": _filter("these namespaces", "bu-a,bu-b", "!kube-*"),
    "workload_kind": _filter("these workload kinds", "Job,CronJob"),
    "workload": _filter("these workloads", "train-*"),
    "node_pool": _filter("these node pools", "gpu-spot"),
    "instance_type": _filter("these instance types", "p5.*"),
    "capacity_type": _filter("spot, on-demand or reserved capacity", "spot"),
    "gpu_model": _filter("these GPU models", "NVIDIA H100*"),
    "resource": _filter("these resources", "nvidia.com/gpu"),
    "zone": _filter("these zones", "eu-central-1a"),
    "label": Annotated[
        str | None,
        Query(
            description="Only rows of pods with these cost labels, each as name:value. Values of the same name are "
            f"alternatives; all names must match. Values: {_FILTER_SYNTAX}",
            examples=["team:search,team:vision", "env:!dev"],
        ),
    ],
    "pod": _filter("these pods, at most 48 hours", "train-0"),
    "node": _filter("these nodes, at most 48 hours", "ip-10-0-1-7*"),
    "resource_claim": _filter("these ResourceClaims (DRA), at most 48 hours", "gpu"),
    "dra_driver": _filter("claims of these DRA drivers, at most 48 hours", "gpu.nvidia.com"),
    "server": _filter("these inference servers", "vllm,sglang"),
    "model": _filter("these models", "meta-llama/*", "!*"),
    "consumer": _filter(
        "requests of these business units, whoever owns the servers (`inference.consumer_label` of the settings)",
        "search,ads",
    ),
}
"""The filters of all routes by the name of their dimension, or `label`."""
Filters = Mapping[str, str | None]
"""The filters of a request by their names; None for one that was not sent."""


def with_filters(*names: str) -> Callable[[Route], Route]:
    """Declare filters of a route as query parameters. It gets their values as `filters`, where they are documented."""

    def declare(route: Route) -> Route:
        signature = signature_of(route)
        parameters: list[Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name == "filters":
                parameters += [parameter.replace(name=name, annotation=_FILTERS[name], default=None) for name in names]
            else:
                parameters.append(parameter)

        @wraps(route)
        def handle(**arguments: Any) -> Any:
            return route(filters={name: arguments.pop(name) for name in names}, **arguments)

        handle.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return cast(Route, handle)

    return declare
