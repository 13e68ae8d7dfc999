"""Routes of what things cost: costs, business units, waste."""

from collections.abc import Callable

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

from gpucost.api import cost_schemas as schemas
from gpucost.api.cost_rows import cost_rows
from gpucost.core.query.cost_query import LARGEST_PAGE
from gpucost.http import report_parameters as given
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.answers import answers, json_answer
from gpucost.http.pages import cursor_of, cut, paged_csv, paged_json, paged_lines
from gpucost.reports import Asked, ReportService
from gpucost.reports.waste import DEFAULT_OFFENDERS
from gpucost.runtime.json_text import dumps_row


def add_cost_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Put the routes on an app; the service is made when it is first asked."""

    @app.get(
        "/v1/costs",
        summary="Costs by period and group",
        tags=["reports"],
        responses=answers(
            schemas.CostsAnswer,
            extra={name: {"schema": {"type": "string"}} for name in ("text/csv", "application/jsonl")},
        ),
    )
    @open_to("bu")
    def costs(
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        granularity: given.Grain = "hour",
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
        limit: given.Limit = LARGEST_PAGE,
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
        asked = Asked(start, end, window, granularity, group_by, filters, cluster, idle, sort, limit, cursor)
        report = service().costs(asked, scope=scope_of_caller(app))
        if format == "csv":
            return paged_csv(*schemas.costs_table(report), cursor_of(report), "costs.csv", report.period)
        page = cut(cost_rows(report), cursor_of(report))
        shape = paged_json if format == "json" else paged_lines
        return shape(schemas.costs_head(report), page, schemas.costs_tail(report))

    @app.get(
        "/v1/business-units",
        summary="Business units with their sums",
        tags=["reports"],
        responses=answers(schemas.BusinessUnitsAnswer),
    )
    @open_to("bu")
    def business_units(
        start: given.Start = None, end: given.End = None, window: given.Window = None, cluster: given.Cluster = None
    ) -> Response[str]:
        """Every business unit with its sum over the whole period; units of the settings that held nothing have 0."""
        report = service().business_units(Asked(start, end, window, cluster=cluster), scope=scope_of_caller(app))
        return json_answer(schemas.business_units_answer(report))

    @app.get(
        "/v1/business-units/<name>",
        summary="One business unit by period",
        tags=["reports"],
        responses=answers(schemas.BusinessUnitAnswer, may_be_missing=True),
    )
    @open_to("bu")
    def business_unit(
        name: given.UnitName,
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        granularity: given.Grain = "day",
        cluster: given.Cluster = None,
    ) -> Response[str]:
        """What one business unit cost in each period; its totals are its own: effective + waste + unmeasured."""
        asked = Asked(start, end, window, granularity, cluster=cluster)
        report = service().business_unit(name, asked, scope=scope_of_caller(app))
        return json_answer(schemas.business_unit_answer(name, report))

    @app.get(
        "/v1/business-units/<name>/workloads",
        summary="Workloads of one business unit",
        tags=["reports"],
        responses=answers(schemas.WorkloadsAnswer, may_be_missing=True),
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
        asked = Asked(start, end, window, cluster=cluster, sort=sort, limit=limit, cursor=cursor)
        report = service().workloads(name, asked, scope=scope_of_caller(app))
        page = cut((dumps_row({**row.group, **row.costs.figures()}) for row in report.rows), cursor_of(report))
        return paged_json(schemas.unit_head(name, report), page, schemas.unit_tail(report))

    @app.get(
        "/v1/business-units/<name>/trend",
        summary="One business unit, and the period before",
        tags=["reports"],
        responses=answers(schemas.TrendAnswer, may_be_missing=True),
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
        found = service().trend(name, Asked(start, end, window, cluster=cluster), scope=scope_of_caller(app))
        return json_answer(schemas.trend_answer(name, found))

    @app.get("/v1/waste", summary="Worst offenders", tags=["reports"], responses=answers(schemas.WasteAnswer))
    @open_to("bu")
    def waste(
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        cluster: given.Cluster = None,
        business_unit: given.BusinessUnit = None,
        namespace: given.Namespace = None,
        limit: given.OffenderLimit = DEFAULT_OFFENDERS,
        cursor: given.Cursor = None,
    ) -> Response[str]:
        """Which workloads wasted most money, since when without a day's pause, and which of their pods.

        The pods are those of the newest hour that has figures.
        """
        filters = {"business_unit": business_unit, "namespace": namespace}
        asked = Asked(start, end, window, cluster=cluster, filters=filters, limit=limit, cursor=cursor)
        found = service().waste(asked, scope=scope_of_caller(app))
        page = cut(map(dumps_row, map(schemas.offender_row, found.offenders)), cursor_of(found.report))
        return paged_json(schemas.waste_head(found.report), page, schemas.waste_tail(found.report))
