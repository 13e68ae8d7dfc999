"""Routes of node pool limits and resource quotas."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from pydantic import Field

from gpucost.core.amounts import quantize
from gpucost.core.query.periods import Period
from gpucost.http import report_parameters as parameters
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.responses import describe_responses, json_response
from gpucost.http.schemas import Amount, Instant, NullCursor, PeriodResponse, ResponseModel, period_fields
from gpucost.reports.limit_reports import LimitReports, PoolRow, QuotaRow
from gpucost.reports.parameters import QueryParameters


class NodePoolRow(ResponseModel):
    """A node pool's resource at the end of an hour, in units of the resource."""

    cluster: str
    hour: Instant
    node_pool: str
    resource: str = Field(examples=["nvidia.com/gpu"])
    used: Amount | None = Field(
        description="Units on the pool's nodes, allocated or not; null if Karpenter reports none"
    )
    limit: Amount | None = Field(description="Null if the pool has no limit")
    percent: Amount | None = Field(
        description="100 × used ÷ limit, rounded to 1e-12; null if one of them is null or the limit is 0"
    )


class NodePoolsResponse(PeriodResponse):
    """GET /v1/nodepools. Hours without Karpenter metrics have no row."""

    rows: list[NodePoolRow]
    cursor: NullCursor


class QuotaRowModel(ResponseModel):
    """A GPU quota at the end of an hour, in units of its resource, with means over that hour."""

    cluster: str
    hour: Instant
    namespace: str
    quota: str = Field(description="Name of the ResourceQuota")
    resource: str = Field(description="Without `requests.`", examples=["nvidia.com/gpu"])
    hard: Amount | None = Field(description="What the quota allows")
    requested: Amount | None = Field(
        description="The quota's status.used at the end of the hour: requests of all pods, also pending ones"
    )
    held: Amount = Field(description="Mean units allocated to the namespace's pods during the hour")
    used: Amount | None = Field(description="Mean units used, where utilization was measured; null if it was not")


class QuotasResponse(PeriodResponse):
    """GET /v1/quotas. Hours without quota metrics have no row."""

    rows: list[QuotaRowModel]
    cursor: NullCursor


def add_pool_and_quota_routes(app: APIGatewayHttpResolver, service: Callable[[], LimitReports]) -> None:
    """Register the routes. The service is made on its first use."""

    @app.get(
        "/v1/nodepools",
        summary="Use and limits of node pools",
        tags=["reports"],
        responses=describe_responses(NodePoolsResponse),
    )
    @open_to("viewer")
    def node_pools(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
    ) -> Response[str]:
        """GPUs of every Karpenter node pool and the pool's limit, at the end of each hour of at most 48."""
        query_parameters = QueryParameters(start=start, end=end, window=window, cluster=cluster)
        return _rows_response(*service().pools(query_parameters, scope=scope_of_caller(app)), _pool_row)

    @app.get(
        "/v1/quotas",
        summary="Use and limits of GPU quotas",
        tags=["reports"],
        responses=describe_responses(QuotasResponse),
    )
    @open_to("viewer")
    def quotas(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
    ) -> Response[str]:
        """GPU quotas of every namespace, and what it held and used, in each hour of at most 48."""
        query_parameters = QueryParameters(start=start, end=end, window=window, cluster=cluster)
        return _rows_response(*service().quotas(query_parameters, scope=scope_of_caller(app)), _quota_row)


def _rows_response(period: Period, rows: list[Any], row_fields: Callable[[Any], dict[str, Any]]) -> Response[str]:
    body = {**period_fields(period), "rows": [row_fields(row) for row in rows], "cursor": None}
    return json_response(body)


def _pool_row(row: PoolRow) -> dict[str, Any]:
    pool = row.limit
    return {
        "cluster": row.cluster,
        "hour": row.hour,
        "node_pool": pool.node_pool,
        "resource": pool.resource,
        "used": pool.used,
        "limit": pool.limit,
        "percent": _percent(pool.used, pool.limit),
    }


def _quota_row(row: QuotaRow) -> dict[str, Any]:
    quota = row.quota
    return {
        "cluster": row.cluster,
        "hour": row.hour,
        "namespace": quota.namespace,
        "quota": quota.name,
        "resource": quota.resource,
        "hard": quota.hard,
        "requested": quota.used,
        "held": row.held,
        "used": row.used,
    }


def _percent(used: Decimal | None, limit: Decimal | None) -> Decimal | None:
    return None if used is None or not limit else quantize(100 * used / limit)
