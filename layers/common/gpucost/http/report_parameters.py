"""Query and path parameters of reports, with their descriptions for the OpenAPI document."""

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
        description="Comma-separated dimensions: business_unit, cluster, namespace, workload_kind, workload, "
        "node_pool, instance_type, capacity_type, gpu_model, resource, zone, label:<name> of the settings' "
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
Namespace = Annotated[
    str | None, Query(description=f"Only rows of these namespaces: {_FILTER_SYNTAX}", examples=["bu-a,bu-b", "!kube-*"])
]
WorkloadKind = Annotated[
    str | None, Query(description=f"Only rows of these workload kinds: {_FILTER_SYNTAX}", examples=["Job,CronJob"])
]
Workload = Annotated[
    str | None, Query(description=f"Only rows of these workloads: {_FILTER_SYNTAX}", examples=["train-*"])
]
NodePool = Annotated[
    str | None, Query(description=f"Only rows of these node pools: {_FILTER_SYNTAX}", examples=["gpu-spot"])
]
InstanceType = Annotated[
    str | None, Query(description=f"Only rows of these instance types: {_FILTER_SYNTAX}", examples=["p5.*"])
]
CapacityType = Annotated[
    str | None,
    Query(description=f"Only rows of spot, on-demand or reserved capacity: {_FILTER_SYNTAX}", examples=["spot"]),
]
GpuModel = Annotated[
    str | None, Query(description=f"Only rows of these GPU models: {_FILTER_SYNTAX}", examples=["NVIDIA H100*"])
]
Resource = Annotated[
    str | None, Query(description=f"Only rows of these resources: {_FILTER_SYNTAX}", examples=["nvidia.com/gpu"])
]
Zone = Annotated[
    str | None, Query(description=f"Only rows of these zones: {_FILTER_SYNTAX}", examples=["eu-central-1a"])
]
Label = Annotated[
    str | None,
    Query(
        description="Only rows of pods with these cost labels, each as name:value. Values of the same name are "
        f"alternatives; all names must match. Values: {_FILTER_SYNTAX}",
        examples=["team:search,team:vision", "env:!dev"],
    ),
]
Pod = Annotated[
    str | None, Query(description=f"Only rows of these pods, at most 48 hours: {_FILTER_SYNTAX}", examples=["train-0"])
]
Node = Annotated[
    str | None,
    Query(description=f"Only rows of these nodes, at most 48 hours: {_FILTER_SYNTAX}", examples=["ip-10-0-1-7*"]),
]
ResourceClaim = Annotated[
    str | None,
    Query(description=f"Only rows of these ResourceClaims (DRA), at most 48 hours: {_FILTER_SYNTAX}", examples=["gpu"]),
]
DraDriver = Annotated[
    str | None,
    Query(
        description=f"Only rows of claims of these DRA drivers, at most 48 hours: {_FILTER_SYNTAX}",
        examples=["gpu.nvidia.com"],
    ),
]
ModelGroupBy = Annotated[
    str,
    Query(
        description="Comma-separated dimensions: cluster, business_unit, namespace, workload_kind, workload, "
        "gpu_model, server, model, consumer. Default: one row per period",
        examples=["model", "business_unit,model", "consumer,model"],
    ),
]
Model = Annotated[
    str | None, Query(description=f"Only rows of these models: {_FILTER_SYNTAX}", examples=["meta-llama/*", "!*"])
]
Server = Annotated[
    str | None, Query(description=f"Only rows of these inference servers: {_FILTER_SYNTAX}", examples=["vllm,sglang"])
]
Consumer = Annotated[
    str | None,
    Query(
        description="Only rows of requests of these business units, whoever owns the servers "
        f"(`inference.consumer_label` of the settings): {_FILTER_SYNTAX}",
        examples=["search,ads"],
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
