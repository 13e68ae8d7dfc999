"""The parameters of reports, each described once."""

from typing import Annotated, Literal
from urllib.parse import unquote

from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from pydantic import AfterValidator

from gpucost.core.query.cost_query import MAX_PAGE_SIZE, IdlePolicy
from gpucost.core.query.periods import Granularity
from gpucost.reports.lines import MAX_LINES_PER_PAGE
from gpucost.reports.nodes import MAX_NODES_PER_PAGE
from gpucost.reports.waste import MAX_TOP_WASTERS

_FILTER_SYNTAX = (
    "any of several values with commas, ! before what is left out, * at the end for how names begin; !* is: without a "
    r"name; a backslash takes the meaning off a comma, !, * or backslash"
)

Start = Annotated[
    str | None,
    Query(
        description="First moment of the period: a full UTC hour, or a day for its first. With end; or pass "
        "window. Without any of the three: the last 24 hours that have ended, and the answer says so",
        examples=["2026-11-18T00:00:00Z", "2026-11-18"],
    ),
]
End = Annotated[
    str | None,
    Query(
        description="End of the period, itself not in it: a full UTC hour, or a day for its first",
        examples=["2026-11-19T00:00:00Z", "2026-11-19"],
    ),
]
Window = Annotated[
    str | None,
    Query(
        description="The period relative to now, instead of start and end: 24h (hours that have ended), 7d (UTC days, "
        "today's ended hours included), today, yesterday, week, lastweek (from Monday), month, lastmonth",
        examples=["7d", "24h", "lastmonth"],
    ),
]
RowGranularity = Annotated[
    Granularity,
    Query(
        description="Length of a row's period: hour (up to 35 days), UTC day (100 days), week from Monday (371 days), "
        "month (731 days), or the total (371 days). Rows at the edges end where the period does"
    ),
]
GroupBy = Annotated[
    str,
    Query(
        description="Comma-separated dimensions: business_unit, cluster, namespace, workload_kind, workload, "
        "node_pool, instance_type, capacity_type, gpu_model, resource, zone, label:<name> of the settings' "
        "cost_labels; pod and node for at most 48 hours. Without: one row per period",
        examples=["business_unit", "business_unit,namespace", "label:team,gpu_model"],
    ),
]
Cluster = Annotated[
    str | None,
    Query(description=f"Answer about these clusters alone, totals included: {_FILTER_SYNTAX}", examples=["demo", "prod-*"]),
]
BusinessUnit = Annotated[
    str | None, Query(description=f"Rows of these business units: {_FILTER_SYNTAX}", examples=["research"])
]
Namespace = Annotated[
    str | None, Query(description=f"Rows of these namespaces: {_FILTER_SYNTAX}", examples=["bu-a,bu-b", "!kube-*"])
]
WorkloadKind = Annotated[str | None, Query(description=f"Rows of these kinds: {_FILTER_SYNTAX}", examples=["Job,CronJob"])]
Workload = Annotated[str | None, Query(description=f"Rows of these workloads: {_FILTER_SYNTAX}", examples=["train-*"])]
NodePool = Annotated[str | None, Query(description=f"Rows on these node pools: {_FILTER_SYNTAX}", examples=["gpu-spot"])]
InstanceType = Annotated[str | None, Query(description=f"Rows on these instance types: {_FILTER_SYNTAX}", examples=["p5.*"])]
CapacityType = Annotated[
    str | None, Query(description=f"Rows on spot, on-demand or reserved capacity: {_FILTER_SYNTAX}", examples=["spot"])
]
GpuModel = Annotated[str | None, Query(description=f"Rows on these GPU models: {_FILTER_SYNTAX}", examples=["NVIDIA H100*"])]
Resource = Annotated[
    str | None, Query(description=f"Rows that hold these resources: {_FILTER_SYNTAX}", examples=["nvidia.com/gpu"])
]
Zone = Annotated[str | None, Query(description=f"Rows in these zones: {_FILTER_SYNTAX}", examples=["eu-central-1a"])]
Label = Annotated[
    str | None,
    Query(
        description="Rows of pods with these cost labels, each as name:value: those of one name are alternatives, "
        f"several names must all hold. Values: {_FILTER_SYNTAX}",
        examples=["team:search,team:vision", "env:!dev"],
    ),
]
Pod = Annotated[str | None, Query(description=f"Rows of these pods, at most 48 hours: {_FILTER_SYNTAX}", examples=["train-0"])]
Node = Annotated[
    str | None, Query(description=f"Rows on these nodes, at most 48 hours: {_FILTER_SYNTAX}", examples=["ip-10-0-1-7*"])
]
Idle = Annotated[
    IdlePolicy,
    Query(
        description="What was paid for and nobody held (unallocated + stranded + unobserved + host + residual of the "
        "identity): hidden is in the totals alone; separate has a row of kind idle in every period; "
        "shared-by-allocation and shared-evenly share it among the groups of each cluster and period. All but "
        "hidden add idle_gpu_hours, idle_usd and cost_usd (allocated + idle) to every row"
    ),
]
Sort = Annotated[
    str,
    Query(
        description="Comma-separated figures, dimensions of group_by, or start; a - puts the largest first. Without: "
        "time, then names",
        examples=["-waste_usd", "start,-allocated_usd"],
    ),
]
Limit = Annotated[
    int, Query(description="Rows of one answer at most; cursor goes on", ge=1, le=MAX_PAGE_SIZE, examples=[100])
]
NodeLimit = Annotated[
    int, Query(description="Rows of one answer at most; cursor goes on", ge=1, le=MAX_NODES_PER_PAGE, examples=[100])
]
LineLimit = Annotated[
    int, Query(description="Rows of one answer at most; cursor goes on", ge=1, le=MAX_LINES_PER_PAGE, examples=[100])
]
TopWasterLimit = Annotated[
    int, Query(description="Workloads of one answer at most; cursor goes on", ge=1, le=MAX_TOP_WASTERS, examples=[20])
]
Cursor = Annotated[
    str | None,
    Query(
        description="Of the answer before, to go on; the other parameters stay the same", examples=["WzEwMCwgIjNmYTki…"]
    ),
]
Format = Annotated[
    Literal["json", "csv", "jsonl"],
    Query(
        description="csv: the rows alone, as a download; jsonl: one JSON object a line, first the answer without rows, "
        "then each row. Both name the next page's cursor in the header X-Next-Cursor"
    ),
]
UnitName = Annotated[
    str,
    AfterValidator(unquote),
    Path(
        description="Name of the business unit, percent-encoded. API Gateway takes no / and no ? within a path: units "
        "with one in their name are asked for by /v1/costs and its filter business_unit",
        examples=["research"],
    ),
]
WorkloadSort = Annotated[
    str,
    Query(
        description="Comma-separated figures, or cluster, namespace, workload_kind, workload; a - turns the order",
        examples=["-waste_usd"],
    ),
]
