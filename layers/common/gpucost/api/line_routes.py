"""Routes that explain: the identity period by period, and single pods with how their figures were found."""

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from pydantic import Field

from gpucost.core.query.paging import write_cursor
from gpucost.core.query.periods import Granularity
from gpucost.http import report_parameters as given
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.pagination import fill_page, json_page
from gpucost.http.responses import json_response, responses
from gpucost.http.schemas import (
    Amount,
    Coverage,
    FleetTotals,
    Instant,
    PeriodResponse,
    ResponseModel,
    coverage_fields,
    period_fields,
    totals_fields,
)
from gpucost.reports import QueryParameters, ReportService
from gpucost.reports.lines import DEFAULT_LINES, LineRow
from gpucost.reports.records import FleetRow
from gpucost.runtime.json_text import dumps_row


class FleetPeriod(FleetTotals):
    """The identity in one period."""

    start: Instant
    end: Instant


class FleetResponse(PeriodResponse):
    """GET /v1/fleet. A period in which no hour has figures has no row."""

    granularity: Granularity
    currency: str = Field(description="Of every amount, whatever their names say", examples=["USD"])
    rows: list[FleetPeriod]
    totals: FleetTotals
    coverage: Coverage


class LineRowModel(ResponseModel):
    """One pod and one GPU resource in one hour.

    allocated_gpu_hours = units × gpu_share × hours held; allocated_usd = allocated_gpu_hours × gpu_hourly_usd.
    """

    cluster: str
    hour: Instant
    currency: str = Field(examples=["USD"])
    business_unit: str
    namespace: str
    workload_kind: str
    workload: str
    pod: str
    uid: str
    node: str
    node_pool: str
    instance_type: str
    capacity_type: str
    zone: str
    gpu_model: str
    resource: str = Field(examples=["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"])
    units: int = Field(description="Of the resource, as requested")
    gpu_share: Amount = Field(description="Physical GPUs per unit", examples=[0.142857142857])
    gpu_share_source: str = Field(
        description="How the share was found: product-label, mig-profile, sharing, capacity, settings, whole, neuron; "
        "mig-compute-slices and node-average are estimates",
        examples=["mig-profile"],
    )
    labels: dict[str, str] = Field(description="The settings' cost_labels")
    split_policy: str = Field(description="Which part of a node's price its GPUs bear", examples=["gpu-bears-all"])
    allocated_gpu_hours: Amount
    effective_gpu_hours: Amount | None = Field(description="Null: nobody observed its use")
    utilization: Amount | None = Field(description="Mean observed utilization, 0 to 1")
    utilization_source: str = Field(
        description="The rung of the ladder: pod, shared, node, cluster, or none", examples=["pod"]
    )
    unmeasured_gpu_hours: Amount
    gpu_hourly_usd: Amount | None = Field(description="Price of a physical GPU of the node per hour; null: unknown")
    price_source: str = Field(description='"" where nobody knows a price', examples=["constant", "spot", "cur"])
    allocated_usd: Amount | None
    effective_usd: Amount | None
    waste_usd: Amount | None
    unmeasured_usd: Amount | None
    used_beyond_allocation_gpu_hours: Amount = Field(description="Of a shared device; a memo, in no sum")
    shared_from: str = Field(description='The shared unit whose cost this is a part of; "" for a unit\'s own')


class LinesResponse(PeriodResponse):
    """GET /v1/lines: in order of hour and cluster."""

    rows: list[LineRowModel]
    cursor: str | None = Field(description="To go on with, as parameter `cursor`; null at the end")


def add_line_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Put the routes on an app; the service is made when it is first asked."""

    @app.get("/v1/fleet", summary="The identity by period", tags=["reports"], responses=responses(FleetResponse))
    @open_to("bu")
    def fleet(
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        granularity: given.RowGranularity = "hour",
        cluster: given.Cluster = None,
    ) -> Response[str]:
        """What the fleet cost in every period, and what became of it.

        effective + waste + unmeasured + unallocated + stranded + unobserved + host + residual = node cost, to the last
        digit. Who may see some business units only is told their costs, and no capacity.
        """
        asked = QueryParameters(start, end, window, granularity, cluster=cluster)
        report, rows = service().fleet(asked, scope=scope_of_caller(app))
        return json_response(
            {
                **period_fields(report.period),
                "granularity": report.query.granularity,
                "currency": report.currency,
                "rows": [_period(row) for row in rows],
                "totals": totals_fields(report.totals),
                "coverage": coverage_fields(report.coverage),
            }
        )

    @app.get("/v1/lines", summary="Single pods, and how each figure was found", tags=["reports"],
             responses=responses(LinesResponse))  # fmt: skip
    @open_to("bu")
    def lines(
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        cluster: given.Cluster = None,
        business_unit: given.BusinessUnit = None,
        namespace: given.Namespace = None,
        workload: given.Workload = None,
        pod: given.Pod = None,
        node: given.Node = None,
        node_pool: given.NodePool = None,
        limit: given.LineLimit = DEFAULT_LINES,
        cursor: given.Cursor = None,
    ) -> Response[str]:
        """Every pod that held GPUs, in every hour of at most 48.

        With the share of a GPU that a unit is and how that was found, the price and its source, the utilization and
        its rung: what "why is this $3.43?" is answered with.
        """
        filters = {
            "business_unit": business_unit, "namespace": namespace, "workload": workload, "pod": pod, "node": node,
            "node_pool": node_pool,
        }  # fmt: skip
        asked = QueryParameters(start, end, window, cluster=cluster, filters=filters, limit=limit, cursor=cursor)
        found = service().lines(asked, scope=scope_of_caller(app))

        def cursor_after(count: int) -> str | None:
            place = found.rows[count].position if count < len(found.rows) else found.next_position
            return None if place is None else write_cursor(place, found.etag)

        page = fill_page(map(dumps_row, map(_line, found.rows)), cursor_after)
        return json_page(period_fields(found.query.period), page, {})


def _period(row: FleetRow) -> dict[str, Any]:
    return {"start": row.start, "end": row.end, **totals_fields(row.totals)}


def _line(row: LineRow) -> dict[str, Any]:
    return {"cluster": row.cluster, "hour": row.hour, "currency": row.currency, **row.line._asdict()}
