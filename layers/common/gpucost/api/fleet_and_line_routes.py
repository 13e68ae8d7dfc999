"""Routes that explain costs: the parts of the node cost by period, and single lines."""

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from pydantic import Field

from gpucost.api.cost_schemas import CostReportResponse, fields_after_rows, fields_before_rows
from gpucost.api.price_and_node_schemas import INSTANCE_TYPE_SOURCE, HolderModel
from gpucost.core.amounts import Totals
from gpucost.core.hour_record import LINE_AMOUNTS, Line
from gpucost.core.ledger import Manifest
from gpucost.core.query.periods import Granularity, Period
from gpucost.http import report_parameters as parameters
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.pagination import json_page
from gpucost.http.responses import describe_responses, json_response
from gpucost.http.schemas import FleetTotals, Instant, NextCursor, PeriodResponse, period_fields, totals_fields
from gpucost.reports.lines import DEFAULT_LINES, LINE_FILTERS
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.report_service import ReportService
from gpucost.runtime.json_text import dumps_row


class FleetPeriod(FleetTotals):
    """The parts of the node cost in one period."""

    start: Instant
    end: Instant


class FleetResponse(CostReportResponse):
    """GET /v1/fleet. A period in which no hour has figures has no row."""

    granularity: Granularity
    rows: list[FleetPeriod]


_AMOUNTS_IN_ADDITION = (*(name for name in LINE_AMOUNTS if name not in HolderModel.model_fields), "gpu_hourly_usd")


class LineRowModel(HolderModel, amounts=_AMOUNTS_IN_ADDITION):
    """One pod and one GPU resource in one hour.

    allocated_gpu_hours = units × gpu_share × hours held; allocated_usd = allocated_gpu_hours × gpu_hourly_usd.
    effective_gpu_hours is null if utilization was not measured.
    """

    cluster: str
    hour: Instant
    currency: str = Field(examples=["USD"])
    node: str
    node_pool: str
    instance_type: str
    capacity_type: str
    zone: str
    gpu_model: str
    gpu_share_source: str = Field(
        description="Source of the share: product-label, mig-profile, sharing, fraction, capacity, settings, whole, "
        "neuron; mig-compute-slices and node-average are estimates",
        examples=["mig-profile"],
    )
    labels: dict[str, str] = Field(description="Labels listed in the settings' cost_labels")
    split_policy: str = Field(description="Which part of a node's price its GPUs bear", examples=["gpu-bears-all"])
    price_source: str = Field(description='"" if there is no price', examples=["constant", "spot", "cur"])
    shared_from: str = Field(description='The business unit whose shared cost this is a part of; "" otherwise')
    resource_claim: str = Field(
        "", description="The ResourceClaim (DRA) that holds the GPUs; only if the pod does not request them"
    )
    dra_driver: str = Field("", description="The DRA driver of the claim; only with `resource_claim`")
    instance_type_source: str = Field("", description=INSTANCE_TYPE_SOURCE, examples=["hardware"])


class LinesResponse(PeriodResponse):
    """GET /v1/lines: in order of hour and cluster."""

    rows: list[LineRowModel]
    cursor: NextCursor


def add_fleet_and_line_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Register the routes. The service is made on its first use."""

    @app.get(
        "/v1/fleet",
        summary="Parts of the fleet's node cost by period",
        tags=["reports"],
        responses=describe_responses(FleetResponse),
    )
    @open_to("bu")
    def fleet(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        granularity: parameters.RowGranularity = "hour",
        cluster: parameters.Cluster = None,
    ) -> Response[str]:
        """The fleet's node cost in every period and its parts.

        effective + waste + unmeasured + unallocated + stranded + unobserved + host + residual = node cost, exactly.
        Callers who may see some business units get only the costs of these, without capacity.
        """
        query_parameters = QueryParameters(
            start=start, end=end, window=window, granularity=granularity, cluster=cluster
        )
        report, rows = service().fleet(query_parameters, scope=scope_of_caller(app))
        before = fields_before_rows(report, granularity=report.query.granularity)
        return json_response({**before, "rows": [_fleet_period(*row) for row in rows], **fields_after_rows(report)})

    @app.get(
        "/v1/lines",
        summary="Lines: single pods in single hours",
        tags=["reports"],
        responses=describe_responses(LinesResponse),
    )
    @open_to("bu")
    @parameters.with_filters(*LINE_FILTERS)
    def lines(
        *,
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
        filters: parameters.Filters,
        limit: parameters.LineLimit = DEFAULT_LINES,
        cursor: parameters.Cursor = None,
    ) -> Response[str]:
        """Every pod that held GPUs, in every hour of at most 48.

        Each line has the GPU share of a unit and its source, the price and its source, and the utilization and its
        source. Together they explain the line's cost.
        """
        query_parameters = QueryParameters(
            start=start, end=end, window=window, cluster=cluster, filters=filters, limit=limit, cursor=cursor
        )
        period, lines_page = service().lines(query_parameters, scope=scope_of_caller(app))
        rows = (dumps_row(_line_fields(*row)) for row in lines_page.rows)
        return json_page(period_fields(period), rows, lines_page.cursor_after, {})


def _fleet_period(period: Period, totals: Totals) -> dict[str, Any]:
    return {"start": period.start, "end": period.end, **totals_fields(totals)}


def _line_fields(hour: Manifest, line: Line) -> dict[str, Any]:
    return {"cluster": hour.cluster, "hour": hour.hour, "currency": hour.currency, **line.figures()}
