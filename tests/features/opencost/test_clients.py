"""Every query that kubectl-cost and OpenCost's UI can send, answered with the figures of `/v1/costs` or refused.

The files name the version of each client. The UI's queries were recorded from its own request code, and kubectl-cost's
were derived from its source, which builds them from fixed parameters. The clients do not run here, because no package
registry has them; `python -m tests.browser.opencost_ui CHECKOUT` opens the UI's page.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from gpucost.core.hour_record import HourRecord
from tests.features.opencost.served_fleet import serving_fleet_from_file
from tests.functions.api_requests import ApiResponse, request_as, role_caller

NOW = datetime(2026, 11, 19, 3, 20, tzinfo=UTC)
"""The newest published hour is the one from 02:00."""
QUERIES = {
    name: json.loads((Path(__file__).parent / f"{name}_queries.json").read_text())["queries"]
    for name in ("kubectl_cost", "opencost_ui")
}
ALLOCATION = {"/allocation", "/allocation/compute", "/model/allocation"}
ASSETS = {"/assets", "/model/assets"}
NOT_STORED = "gpucost has no "
REFUSALS = (
    NOT_STORED,
    "cannot aggregate by 'container'; allowed: all, cluster",
    "cannot aggregate by 'service'; allowed: all, cluster",
    "cannot filter by container; allowed: cluster",
    "cannot filter by service; allowed: cluster",
    "'account' is not a field; allowed: type, assetType",
    "'project' is not a field; allowed: type, assetType",
    "cannot filter by service; allowed: type, assetType",
    "hours by node or pod, and 48 is the maximum",
    "label 'app' is not stored",
    "hours outside whole UTC days, and 48 is the maximum. Shorten it, or use whole UTC days as window and step.",
)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[HourRecord]]:
    """`test_routes.py` asks each route for the same hours in the real database engine."""
    with serving_fleet_from_file(tmp_path_factory.mktemp("ledger"), NOW) as hour_records:
        yield hour_records


def ask(query: str) -> ApiResponse:
    path, _, parameters = query.partition("?")
    return request_as(role_caller("viewer"), path, parameters)


Costs = Callable[..., ApiResponse]
"""`/v1/costs` of a start, an end and filters."""


@pytest.fixture(scope="module")
def costs(records: list[HourRecord]) -> Costs:
    @cache
    def read(start: str, end: str, **filters: str) -> ApiResponse:
        parameters = {"start": start, "end": end, "granularity": "total", "group_by": "namespace", **filters}
        answer = ask(f"/v1/costs?{urlencode(parameters)}")
        assert answer.status == 200, answer.body
        return answer

    return read


FILTERS_OF_COSTS = {
    "cluster": "cluster",
    "namespace": "namespace",
    "controllerName": "workload",
    "controller": "workload",
    "node": "node",
    "pod": "pod",
    "controllerKind": "workload_kind",
}
KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet", "daemonset": "DaemonSet", "job": "Job"}
WINDOWS_WITHOUT_HOURS = {
    "lastweek": ("2026-11-08T00:00:00Z", "2026-11-15T00:00:00Z"),
    "lastmonth": ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"),
    "1763424000,1763510400": ("2025-11-18T00:00:00Z", "2025-11-19T00:00:00Z"),
}
"""Windows that end before the first hour of the ledger."""


def filters_of(parameters: dict[str, str]) -> dict[str, str] | None:
    """The query's filters as those of `/v1/costs`; None for others."""
    filters = {"namespace": namespaces} if (namespaces := parameters.get("filterNamespaces")) else {}
    for comparison in filter(None, parameters.get("filter", "").split("+")):
        field, _, quoted = comparison.partition(":")
        name = quoted.strip('"')
        if field in KINDS:
            filters |= {"workload": name, "workload_kind": KINDS[field]}
        elif field == "controllerKind":
            filters["workload_kind"] = KINDS.get(name, name)
        elif field in FILTERS_OF_COSTS:
            filters[FILTERS_OF_COSTS[field]] = name
        elif comparison != 'assetType:"Node"':
            return None
    return filters


def has_no_costs(parameters: dict[str, str], costs: Costs) -> bool:
    """Whether `/v1/costs` has no row either. False: the window has hours, and the filter names nothing that exists."""
    window = WINDOWS_WITHOUT_HOURS.get(parameters["window"])
    if window is not None:
        assert costs(*window).json["rows"] == []
    return window is not None


def check_allocations(query: str, sets: list[dict[str, Any]], costs: Costs) -> bool:
    """Compare allocations with `/v1/costs`. False: there are none, or their filter is not one of `/v1/costs`."""
    parameters = dict(parse_qsl(query.partition("?")[2]))
    allocations = [allocation for each in sets for allocation in each.values()]
    filters = filters_of(parameters)
    if not allocations:
        return has_no_costs(parameters, costs)
    if filters is None:
        return False
    start = min(allocation["start"] for allocation in allocations)
    end = max(allocation["end"] for allocation in allocations)
    report = costs(start, end, **filters).json
    held = [allocation for allocation in allocations if allocation["name"] != "__idle__"]
    for name, figure in (("gpuCost", "allocated_usd"), ("gpuHours", "allocated_gpu_hours")):
        assert sum(allocation[name] for allocation in held) == sum(row[figure] for row in report["rows"]), query
    if parameters["includeIdle"] == "true" and not filters:
        assert sum(allocation["totalCost"] for allocation in allocations) == report["totals"]["node_cost_usd"]
    for allocation in allocations:
        minutes = Decimal((moment(allocation["end"]) - moment(allocation["start"])).total_seconds()) / 60
        assert allocation["minutes"] == minutes
    return True


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def check_assets(query: str, data: Any, costs: Costs) -> bool:
    """Compare nodes with `/v1/costs`. kubectl-cost reads a list with one set, and the UI reads the set."""
    (nodes,) = data if "filterTypes" in query else [data]
    parameters = dict(parse_qsl(query.partition("?")[2]))
    if not nodes:
        return has_no_costs(parameters, costs)
    filters = filters_of(parameters)
    if filters is None:
        return False
    node = next(iter(nodes.values()))
    report = costs(node["start"], node["end"], **filters).json
    assert sum(node["totalCost"] for node in nodes.values()) == report["totals"]["node_cost_usd"]
    assert {node["type"] for node in nodes.values()} == {"Node"}
    return True


def check(query: str, answer: ApiResponse, costs: Costs) -> str:
    """Compare an answer with `/v1/costs`, or a refusal with its sentence. Return which of them it is."""
    path = query.partition("?")[0]
    if answer.status != 200:
        assert answer.status in (400, 404), (query, answer.body)
        assert any(sentence in answer.json["detail"] for sentence in REFUSALS), (query, answer.json["detail"])
        assert (answer.status == 404) == (NOT_STORED in answer.json["detail"])
        return "refused"
    assert (answer.json["code"], answer.json["status"]) == (200, "success")
    if path in ALLOCATION:
        return "compared" if check_allocations(query, answer.json["data"], costs) else "answered"
    if path in ASSETS:
        return "compared" if check_assets(query, answer.json["data"], costs) else "answered"
    assert (path, answer.json["data"]) == ("/model/getConfigs", {"currencyCode": "USD"})
    return "answered"


ROUTES: dict[str, dict[str, tuple[int, int, int]]] = {
    "kubectl_cost": {
        "/allocation/compute": (60, 0, 14),
        "/model/allocation": (127, 0, 24),
        "/model/assets": (17, 0, 0),
        "/model/clusterInfo": (0, 0, 1),
        "/model/getConfigs": (0, 1, 0),
        "/model/savings/requestSizingV2": (0, 0, 1),
    },
    "opencost_ui": {
        "/allocation/compute": (271, 1, 50),
        "/allocation/autocomplete": (0, 0, 7),
        "/assets": (38, 3, 3),
        "/assets/autocomplete": (0, 0, 6),
        "/cloudCost": (0, 0, 1),
        "/cloudCost/autocomplete": (0, 0, 5),
        "/cloudCost/status": (0, 0, 1),
        "/cloudCost/view/graph": (0, 0, 5),
        "/cloudCost/view/table": (0, 0, 5),
        "/cloudCost/view/totals": (0, 0, 5),
        "/customCost/timeseries": (0, 0, 8),
        "/customCost/total": (0, 0, 8),
    },
}
"""How many queries of each client are answered with figures that equal those of `/v1/costs`, answered with nothing to
compare (the currency, and filters that match nothing), and refused, by route."""


def test_counts_add_up_to_those_of_the_documentation() -> None:
    counts = [count for routes in ROUTES.values() for count in routes.values()]
    assert [sum(count[column] for count in counts) for column in range(3)] == [513, 5, 144]
    assert sum(len(queries) for queries in QUERIES.values()) == 662


@pytest.mark.parametrize("client", ROUTES)
def test_every_query_of_a_client_is_answered_or_refused(costs: Costs, client: str) -> None:
    counts: dict[str, Counter[str]] = {}
    for query in QUERIES[client]:
        result = check(query, ask(query), costs)
        counts.setdefault(query.partition("?")[0], Counter())[result] += 1
    assert {
        route: (count["compared"], count["answered"], count["refused"]) for route, count in counts.items()
    } == ROUTES[client]
