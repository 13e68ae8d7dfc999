"""SageMaker HyperPod: `ml.X` has the hardware of EC2's X, and a price of its own."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from msgspec.structs import replace

from gpucost.core.amounts import SCALE, to_fixed_point
from gpucost.core.attribution import AttributionRules, build_record
from gpucost.core.hours import HOUR, HOUR_MS
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE, instance_id_of
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.nodes import describe_node
from gpucost.core.metering.observations import NodeObservation, NodeState
from gpucost.core.pricing.bill import SAGEMAKER, BillLine, BillSharing, build_bill
from gpucost.core.pricing.list_prices import list_prices
from gpucost.core.pricing.node_costs import NodeCost, Pricing, Unpriced
from gpucost.core.pricing.prices import Price, PriceBook
from gpucost.pipeline.pricing import BUILT_IN_SHAPES
from tests.core.single_node_cluster import GPU, observation, pod
from tests.core.single_node_cluster import HOUR as OBSERVED_HOUR

LABELS = {
    "label_node_kubernetes_io_instance_type": "ml.g5.12xlarge",
    "label_sagemaker_amazonaws_com_instance_group_name": "training",
    "label_topology_kubernetes_io_zone": "us-east-1a",
}
PROVIDER_ID = "aws:///use1-az4/sagemaker/cluster/hyperpod-tqci9uwuwqiz-i-0f190b8fa232cef49"
WINDOW = IntervalMs(0, HOUR_MS)


def node(units: int) -> NodeObservation:
    states = (NodeState(None, {GPU: Decimal(units)}, {}, LABELS),) if units else ()
    return NodeObservation("hyperpod-i-0f190b8fa232cef49", PROVIDER_ID, None, LABELS, states)


def described(units: int) -> GpuNode:
    return describe_node(node(units), LABELS, (), {GPU: Decimal(units)} if units else {}, {})


def cost(pricing: Pricing, instance_type: str = "ml.g5.12xlarge", minutes: int = 60) -> NodeCost | Unpriced:
    of_type = GpuNode("n", provider_id=PROVIDER_ID, instance_type=instance_type, zone="us-east-1a", physical_gpus=4)
    return pricing.node_cost(of_type, "c", IntervalMs(0, minutes * 60_000), Fraction(4))


def test_hardware_is_that_of_the_ec2_type() -> None:
    for types in (GPUS_OF_INSTANCE, NEURON_OF_INSTANCE):
        assert {f"ml.{name}" for name in types if not name.startswith("ml.")} == {
            name for name in types if name.startswith("ml.")
        }
    assert GPUS_OF_INSTANCE["ml.g5.12xlarge"] == 4
    assert (BUILT_IN_SHAPES["ml.g5.12xlarge"].vcpus, BUILT_IN_SHAPES["ml.g5.12xlarge"].gpus) == (48, 4)


def test_time_sliced_node_without_feature_discovery_has_the_gpus_of_its_type() -> None:
    shared = described(16)
    assert shared.physical_gpus == 4
    assert shared.share(GPU, None).gpus_per_unit == Fraction(1, 4)
    assert shared.node_pool == "training"


def test_node_that_advertises_nothing_is_stranded_and_not_free() -> None:
    pods = (replace(pod(), node="other"),)
    collected = replace(observation(nodes=(node(0),)), pods=pods, collects_nodes=True, collects_capacity=True)
    usage = meter(collected, MeteringRules())
    (of_node,) = usage.nodes or ()
    assert of_node.total_gpu_ms == of_node.not_ready_gpu_ms == Fraction(4 * HOUR_MS)
    record = build_record(usage, AttributionRules(Pricing.constant(Decimal(2))))
    assert record.totals is not None and record.totals.capacity is not None
    assert record.totals.capacity.stranded_usd == 8 * SCALE


@pytest.mark.parametrize(
    ("provider_id", "instance_id"),
    [
        (PROVIDER_ID, "i-0f190b8fa232cef49"),
        ("aws:///us-east-1a/i-0123456789abcdef0", "i-0123456789abcdef0"),
        ("", ""),
        ("kind://docker/c/worker", "worker"),
    ],
)
def test_instance_id_is_the_end_of_the_provider_id(provider_id: str, instance_id: str) -> None:
    assert instance_id_of(provider_id) == instance_id


def test_price_of_ec2_is_never_taken() -> None:
    listed = Price(
        "on-demand",
        "node-hour",
        Decimal("5.672"),
        {"instance_type": "g5.12xlarge", "region": "us-east-1", "operating_system": "linux"},
    )
    pricing = Pricing(PriceBook([*list_prices(), listed]), ("cur", "on-demand", "list-price"))
    assert isinstance(cost(pricing, "g5.12xlarge"), NodeCost)
    unpriced = cost(pricing)
    assert isinstance(unpriced, Unpriced)
    assert unpriced.note.endswith(
        "EC2's price does not apply to SageMaker HyperPod. Use AWS credentials with pricing:GetProducts (in a stack: "
        "set the parameter OnDemandPrices), read the bill, or add a price of ml.g5.12xlarge in pricing.rates"
    )


def test_price_of_sagemaker_applies_to_its_type() -> None:
    applies_to = {"instance_type": "ml.g5.12xlarge", "region": "us-east-1", "operating_system": "linux"}
    pricing = Pricing(PriceBook([Price("on-demand", "node-hour", Decimal("7.09"), applies_to)]), ("on-demand",))
    priced = cost(pricing)
    assert isinstance(priced, NodeCost)
    assert priced.cost == Fraction("7.09")


def billed(resource: str, amount: str, hours: str, **more: Any) -> BillLine:
    values: dict[str, Any] = {
        "kind": "instance",
        "start": OBSERVED_HOUR,
        "end": OBSERVED_HOUR + HOUR,
        "account": "1",
        "region": "us-east-1",
        "resource_id": resource,
        "instance_type": "ml.g5.12xlarge",
        "capacity_type": "on-demand",
        "operation": "",
        "instance_hours": Fraction(hours),
        "amount": Decimal(amount),
        "currency": "USD",
        "is_final": True,
        **more,
    }
    return BillLine(**values)


def test_bill_that_names_no_instance_has_the_rate_of_the_type() -> None:
    """Two nodes all hour and one for half of it: $17.725 for 2.5 hours."""
    lines = [billed(SAGEMAKER, "14.18", "2"), billed(SAGEMAKER, "3.545", "0.5", account="2")]
    lines.append(billed(SAGEMAKER, "98.32", "1", instance_type="ml.p5.48xlarge"))
    pricing = Pricing(PriceBook([]), ("cur",), bill=build_bill(lines, BillSharing()))
    for minutes, usd in ((60, "7.09"), (30, "3.545")):
        priced = cost(pricing, minutes=minutes)
        assert isinstance(priced, NodeCost)
        assert (priced.source, priced.cost, priced.is_final) == ("cur", Fraction(usd), True)
    assert isinstance(cost(pricing, "ml.g5.48xlarge"), Unpriced)
    assert isinstance(cost(pricing, "g5.12xlarge"), Unpriced), "an instance of EC2 has a line of its own"


def test_bill_that_names_the_instance_has_its_amount() -> None:
    lines = [billed("i-0f190b8fa232cef49", "6.5", "1"), billed(SAGEMAKER, "7.09", "1")]
    pricing = Pricing(PriceBook([]), ("cur",), bill=build_bill(lines, BillSharing("none")))
    priced = cost(pricing)
    assert isinstance(priced, NodeCost)
    assert priced.cost == Fraction(to_fixed_point(Decimal("6.5")), SCALE)
