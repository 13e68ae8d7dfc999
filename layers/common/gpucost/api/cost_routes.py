"""Routes of what things cost: costs, business units, waste."""

from collections.abc import Callable

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

from gpucost.api import cost_schemas as schemas
from gpucost.api.cost_rows import cost_rows
from gpucost.core.query.cost_query import MAX_PAGE_SIZE
from gpucost.http import report_parameters as given
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.pagination import csv_page, cursor_writer, fill_page, json_lines_page, json_page
from gpucost.http.responses import json_response, responses
from gpucost.reports import QueryParameters, ReportService
from gpucost.reports.waste import DEFAULT_TOP_WASTERS
from gpucost.runtime.json_text import dumps_row


def add_cost_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Put the routes on an app; the service is made when it is first asked."""

    @app.get(
        "/v1/costs",
        summary="Costs by period and group",
        tags=["reports"],
        responses=responses(
            schemas.CostsResponse,
            extra_content={name: {"schema": {"type": "string"}} for name in ("text/csv", "application/jsonl")},
        ),
    )
    @open_to("bu")
    def costs(
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        granularity: given.RowGranularity = "hour",
        group_by: given.GroupBy = "",
        cluster: given.Cluster = None,
        business_unit: given.BusinessUnit = None,
        namespace: given.Namespace = None,
        workload_kind: given.WorkloadKind = None,
        workload: given.Workload = None,
        node_pool: given.NodePool = None,
        instance_type: given.InstanceType = None,
        capacity_type: given.CapacityType = None,
        gpu_model: given.GpuModel = None,
        resource: given.Resource = None,
        zone: given.Zone = None,
        label: given.Label = None,
        pod: given.Pod = None,
        node: given.Node = None,
        idle: given.Idle = "hidden",
        sort: given.Sort = "",
        limit: given.Limit = MAX_PAGE_SIZE,
        cursor: given.Cursor = None,
        format: given.Format = "json",  # noqa: A002 - the parameter's public name
    ) -> Response[str]:
        """What GPUs cost, per period and group.

        Hours that are missing or incomplete add nothing and are seen in `coverage`; a period in which no hour has
        figures has no row. Amounts are exact decimals written as JSON numbers. Totals are the fleet's, whatever the
        grouping, filters and page: rows of all pages and `filtered_out` add up to them.
        """
        filters = {
            "business_unit": business_unit, "namespace": namespace, "workload_kind": workload_kind,
            "workload": workload, "node_pool": node_pool, "instance_type": instance_type,
            "capacity_type": capacity_type, "gpu_model": gpu_model, "resource": resource, "zone": zone,
            "label": label, "pod": pod, "node": node,
        }  # fmt: skip
        asked = QueryParameters(start, end, window, granularity, group_by, filters, cluster, idle, sort, limit, cursor)
        report = service().costs(asked, scope=scope_of_caller(app))
        if format == "csv":
            return csv_page(*schemas.costs_table(report), cursor_writer(report), "costs.csv", report.period)
        page = fill_page(cost_rows(report), cursor_writer(report))
        shape = json_page if format == "json" else json_lines_page
        return shape(schemas.costs_fields_before(report), page, schemas.costs_fields_after(report))

    @app.get(
        "/v1/business-units",
        summary="Business units with their sums",
        tags=["reports"],
        responses=responses(schemas.BusinessUnitsResponse),
    )
    @open_to("bu")
    def business_units(
        start: given.Start = None, end: given.End = None, window: given.Window = None, cluster: given.Cluster = None
    ) -> Response[str]:
        """Every business unit with its sum over the whole period; units of the settings that held nothing have 0."""
        report = service().business_units(QueryParameters(start, end, window, cluster=cluster), scope=scope_of_caller(app))
        return json_response(schemas.business_units_response(report))

    @app.get(
        "/v1/business-units/<name>",
        summary="One business unit by period",
        tags=["reports"],
        responses=responses(schemas.BusinessUnitResponse, can_be_missing=True),
    )
    @open_to("bu")
    def business_unit(
        name: given.UnitName,
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        granularity: given.RowGranularity = "day",
        cluster: given.Cluster = None,
    ) -> Response[str]:
        """What one business unit cost in each period; its totals are its own: effective + waste + unmeasured."""
        asked = QueryParameters(start, end, window, granularity, cluster=cluster)
        report = service().business_unit(name, asked, scope=scope_of_caller(app))
        return json_response(schemas.business_unit_response(name, report))

    @app.get(
        "/v1/business-units/<name>/workloads",
        summary="Workloads of one business unit",
        tags=["reports"],
        responses=responses(schemas.WorkloadsResponse, can_be_missing=True),
    )
    @open_to("bu")
    def workloads(
        name: given.UnitName,
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        cluster: given.Cluster = None,
        sort: given.WorkloadSort = "-allocated_usd",
        limit: given.Limit = 1_000,
        cursor: given.Cursor = None,
    ) -> Response[str]:
        """What each workload of a business unit cost over the whole period, the dearest first."""
        asked = QueryParameters(start, end, window, cluster=cluster, sort=sort, limit=limit, cursor=cursor)
        report = service().workloads(name, asked, scope=scope_of_caller(app))
        page = fill_page((dumps_row({**row.group, **row.costs.figures()}) for row in report.rows), cursor_writer(report))
        return json_page(schemas.unit_fields_before(name, report), page, schemas.unit_fields_after(report))

    @app.get(
        "/v1/business-units/<name>/trend",
        summary="One business unit, and the period before",
        tags=["reports"],
        responses=responses(schemas.TrendResponse, can_be_missing=True),
    )
    @open_to("bu")
    def trend(
        name: given.UnitName,
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        cluster: given.Cluster = None,
    ) -> Response[str]:
        """A business unit's period, the one of the same length before it (of a calendar month, the month before), and
        the change in amounts and percent.

        Percent is null where there was nothing before, or one of the two is not known.
        """
        found = service().trend(name, QueryParameters(start, end, window, cluster=cluster), scope=scope_of_caller(app))
        return json_response(schemas.trend_response(name, found))

    @app.get("/v1/waste", summary="Worst offenders", tags=["reports"], responses=responses(schemas.WasteResponse))
    @open_to("bu")
    def waste(
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        cluster: given.Cluster = None,
        business_unit: given.BusinessUnit = None,
        namespace: given.Namespace = None,
        limit: given.TopWasterLimit = DEFAULT_TOP_WASTERS,
        cursor: given.Cursor = None,
    ) -> Response[str]:
        """Which workloads wasted most money, since when without a day's pause, and which of their pods.

        The pods are those of the newest hour that has figures.
        """
        filters = {"business_unit": business_unit, "namespace": namespace}
        asked = QueryParameters(start, end, window, cluster=cluster, filters=filters, limit=limit, cursor=cursor)
        found = service().waste(asked, scope=scope_of_caller(app))
        page = fill_page(map(dumps_row, map(schemas.top_waster_row, found.top_wasters)), cursor_writer(found.report))
        return json_page(schemas.waste_fields_before(found.report), page, schemas.waste_fields_after(found.report))
