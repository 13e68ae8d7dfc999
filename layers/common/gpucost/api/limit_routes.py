"""Routes of what clusters let people have: node pools and quotas."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from pydantic import Field

from gpucost.core.money import quantize
from gpucost.core.query.periods import Period
from gpucost.http import report_parameters as given
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.responses import json_response, responses
from gpucost.http.schemas import Amount, Instant, PeriodResponse, ResponseModel, period_fields
from gpucost.reports import QueryParameters
from gpucost.reports.limits import LimitReports, PoolRow, QuotaRow


class NodePoolRow(ResponseModel):
    """A node pool's resource at the end of an hour, in units of the resource."""

    cluster: str
    hour: Instant
    node_pool: str
    resource: str = Field(examples=["nvidia.com/gpu"])
    used: Amount | None = Field(description="Of the pool's nodes, whoever holds them; null: Karpenter does not say")
    limit: Amount | None = Field(description="Null: the pool has none")
    percent: Amount | None = Field(description="100 × used ÷ limit, rounded to 1e-12; null where one of them is, or 0")


class NodePoolsResponse(PeriodResponse):
    """GET /v1/nodepools. Hours of which Karpenter's metrics said nothing have no row."""

    rows: list[NodePoolRow]
    cursor: None = Field(description="Null: the answer is whole")


class QuotaRowModel(ResponseModel):
    """A GPU quota at the end of an hour, in units of its resource, beside means over that hour."""

    cluster: str
    hour: Instant
    namespace: str
    quota: str = Field(description="Name of the ResourceQuota")
    resource: str = Field(description="Without `requests.`", examples=["nvidia.com/gpu"])
    hard: Amount | None = Field(description="What the quota allows")
    requested: Amount | None = Field(
        description="What it counts as used at the hour's end: pods' requests, pending too"
    )
    held: Amount = Field(description="Mean units that pods of the namespace held in the hour")
    used: Amount | None = Field(description="Mean units that they used, as far as observed; null: nothing was observed")


class QuotasResponse(PeriodResponse):
    """GET /v1/quotas. Hours of which kube-state-metrics said nothing of quotas have no row."""

    rows: list[QuotaRowModel]
    cursor: None = Field(description="Null: the answer is whole")


def add_limit_routes(app: APIGatewayHttpResolver, service: Callable[[], LimitReports]) -> None:
    """Put the routes on an app; the service is made when it is first asked."""

    @app.get(
        "/v1/nodepools", summary="Node pools against their limits", tags=["reports"], responses=responses(NodePoolsResponse)
    )
    @open_to("viewer")
    def node_pools(
        start: given.Start = None, end: given.End = None, window: given.Window = None, cluster: given.Cluster = None
    ) -> Response[str]:
        """GPUs of every Karpenter node pool against the pool's limit, at the end of each hour of at most 48."""
        asked = QueryParameters(start, end, window, cluster=cluster)
        return _rows_response(*service().pools(asked, scope=scope_of_caller(app)), _pool_row)

    @app.get("/v1/quotas", summary="GPU quotas against use", tags=["reports"], responses=responses(QuotasResponse))
    @open_to("viewer")
    def quotas(
        start: given.Start = None, end: given.End = None, window: given.Window = None, cluster: given.Cluster = None
    ) -> Response[str]:
        """GPU quotas of every namespace against what it held and used, in each hour of at most 48."""
        asked = QueryParameters(start, end, window, cluster=cluster)
        return _rows_response(*service().quotas(asked, scope=scope_of_caller(app)), _quota_row)


def _rows_response(period: Period, rows: list[Any], row_fields: Callable[[Any], dict[str, Any]]) -> Response[str]:
    found = {**period_fields(period), "rows": [row_fields(row) for row in rows], "cursor": None}
    return json_response(found)


def _pool_row(row: PoolRow) -> dict[str, Any]:
    pool = row.limit
    return {
        "cluster": row.cluster, "hour": row.hour, "node_pool": pool.node_pool, "resource": pool.resource,
        "used": pool.used, "limit": pool.limit, "percent": _percent(pool.used, pool.limit),
    }  # fmt: skip


def _quota_row(row: QuotaRow) -> dict[str, Any]:
    quota = row.quota
    return {
        "cluster": row.cluster, "hour": row.hour, "namespace": quota.namespace, "quota": quota.name,
        "resource": quota.resource, "hard": quota.hard, "requested": quota.used, "held": row.held, "used": row.used,
    }  # fmt: skip


def _percent(used: Decimal | None, limit: Decimal | None) -> Decimal | None:
    return None if used is None or not limit else quantize(100 * used / limit)
