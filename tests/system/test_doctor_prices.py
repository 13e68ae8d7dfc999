"""`gpucost doctor` names nodes without a price, and what to set."""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal

import pytest

from gpucost.core.pricing.prices import Price
from gpucost.settings_document import parse_settings
from gpucost_cli.doctor import ClusterReport, examine_cluster
from tests.system.doctor_cluster import Recent, healthy
from tests.system.doctor_findings import faults

Served = Callable[[str], str]
HYPERPOD = {"node_kubernetes_io_instance_type": "ml.g5.12xlarge"}


class PriceList:
    """Answers with a price of some instance types, and records for which nodes it was asked."""

    def __init__(self, *types: str) -> None:
        self._types = types
        self.nodes: list[Mapping[str, str]] = []

    def __call__(self, nodes: Iterable[Mapping[str, str]]) -> list[Price]:
        self.nodes += nodes
        return [
            Price("on-demand", "node-hour", Decimal("7.09"), {"instance_type": name, "region": "us-west-2"})
            for name in self._types
        ]


def examined(
    prometheus: Served, cluster: Recent, pricing: str = "{}", fetch_prices: PriceList | None = None
) -> ClusterReport:
    clusters = f'[{{name: demo, prometheus: {{url: "{prometheus(cluster.text())}"}}}}]'
    settings = parse_settings(f"clusters: {clusters}\npricing: {pricing}")
    return examine_cluster(settings.clusters[0], settings, cluster.now, fetch_prices=fetch_prices)


def test_hyperpod_nodes_without_a_price_are_named_with_what_to_set(prometheus: Served) -> None:
    check = faults(examined(prometheus, healthy(nodes=2, labels=HYPERPOD)))["price of ml.g5.12xlarge"]
    assert (check.status, check.severity) == ("missing", "recommended")
    assert check.finding == (
        "no price for node n1 (ml.g5.12xlarge) from override, spot, on-demand, list-price; EC2's price does not apply "
        "to SageMaker HyperPod (nor for 1 other nodes of this type): their hours stay provisional, without costs"
    )
    assert check.change == (
        "Use AWS credentials with pricing:GetProducts (in a stack: set the parameter OnDemandPrices), read the bill, "
        "or add a price of ml.g5.12xlarge in pricing.rates"
    )


@pytest.mark.parametrize(
    "pricing",
    [
        "{source: constant, gpu_hourly_usd: 2}",
        "{rates: [{instance_type: ml.g5.12xlarge, node_hourly_usd: 7.09}]}",
        "{cur: {database: bill, table: bill}}",
    ],
    ids=["constant", "rate", "bill, which only the deployment reads"],
)
def test_price_of_the_settings_or_the_bill_is_no_finding(prometheus: Served, pricing: str) -> None:
    report = examined(prometheus, healthy(labels=HYPERPOD), pricing)
    assert not [name for name in faults(report) if name.startswith("price")]


def test_price_of_the_ec2_type_leaves_the_finding(prometheus: Served) -> None:
    pricing = "{rates: [{instance_type: g5.12xlarge, node_hourly_usd: 5.672}]}"
    assert "price of ml.g5.12xlarge" in faults(examined(prometheus, healthy(labels=HYPERPOD), pricing))


def test_aws_is_asked_for_what_nothing_else_prices(prometheus: Served) -> None:
    price_list = PriceList("ml.g5.12xlarge")
    report = examined(prometheus, healthy(labels=HYPERPOD), fetch_prices=price_list)
    assert "price of ml.g5.12xlarge" not in faults(report)
    assert [(node["instance_type"], node["region"]) for node in price_list.nodes] == [("ml.g5.12xlarge", "us-west-2")]


def test_nodes_of_listed_types_need_no_answer_of_aws(prometheus: Served) -> None:
    price_list = PriceList()
    cluster = healthy(labels={"topology_kubernetes_io_zone": "us-east-1a"})
    report = examined(prometheus, cluster, fetch_prices=price_list)
    assert price_list.nodes == []
    assert not [name for name in faults(report) if name.startswith("price")]


def test_type_without_a_built_in_price_is_named_too(prometheus: Served) -> None:
    check = faults(examined(prometheus, healthy(labels={"node_kubernetes_io_instance_type": "g99.xlarge"})))
    assert "the built-in list prices do not have this type in us-west-2" in (check["price of g99.xlarge"].finding or "")
