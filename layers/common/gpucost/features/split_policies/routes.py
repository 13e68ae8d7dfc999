"""The route of the comparison of split policies."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from pydantic import Field

from gpucost.core.amounts import CapacityCosts
from gpucost.features.split_policies import MAX_DAYS
from gpucost.http import report_parameters as parameters
from gpucost.http.responses import describe_responses, json_response
from gpucost.http.routes import open_to, scope_of_caller
from gpucost.http.schemas import CostFigures, NextCursor, PeriodResponse, ResponseModel, period_fields
from gpucost.reports.parameters import QueryParameters

if TYPE_CHECKING:
    from gpucost.features.split_policies.comparison import SplitComparer


class SplitUnitCosts(CostFigures):
    """What a policy would charge a business unit."""

    business_unit: str


class SplitCapacity(ResponseModel, amounts=CapacityCosts.names(), nullable=CapacityCosts.names()):
    """The cost of the nodes, and its parts that no business unit is charged for. `host_usd` is that of CPU and memory.

    The node cost is the same under every policy that knows all prices.
    """


class SplitPolicyRow(ResponseModel):
    """The sums that one split policy would charge for the hours of this page."""

    split_policy: str = Field(examples=["scad"])
    is_in_force: bool = Field(description="Whether it is the policy of the current settings")
    currency: str = Field(examples=["USD"])
    hours: int = Field(description="Cluster-hours with stored usage and figures")
    business_units: list[SplitUnitCosts]
    capacity: SplitCapacity | None = Field(description="Null if the capacity of an hour is unknown")
    notes: list[str] = Field(description="Which prices are missing under this policy")


class SplitPoliciesResponse(PeriodResponse):
    """GET /v1/split-policies."""

    rows: list[SplitPolicyRow]
    cursor: NextCursor


def add_split_policy_routes(app: APIGatewayHttpResolver, comparer: "Callable[[], SplitComparer]") -> None:
    """Register the route. The comparer is made on its first use."""

    @app.get(
        "/v1/split-policies",
        summary="What each split policy would charge",
        tags=["prices"],
        responses=describe_responses(SplitPoliciesResponse),
        description=f"Rates the stored usage of at most {MAX_DAYS} days with every split policy, and changes nothing. "
        "A page has the sums of some of the hours; the amounts of all pages add up to those of the period.",
    )
    @open_to("viewer")
    def split_policies(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
        cursor: parameters.Cursor = None,
    ) -> Response[str]:
        query_parameters = QueryParameters(start=start, end=end, window=window, cluster=cluster, cursor=cursor)
        page = comparer().page(query_parameters, scope=scope_of_caller(app))
        rows = [
            {
                **sums.fields(),
                "is_in_force": sums.policy_name == page.in_force,
                "currency": sums.currency,
                "notes": [*sums.notes],
            }
            for sums in page.policies
        ]
        return json_response({**period_fields(page.period), "rows": rows, "cursor": page.cursor})
