"""Usage that was stored prices and attributes as it did before."""

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from msgspec.structs import replace

from gpucost.core.attribution import AttributionRules, BusinessUnit, build_record
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import ClaimedDevice, Observation
from gpucost.core.pricing.node_costs import Pricing
from gpucost.core.pricing.prices import Price, PriceBook
from gpucost.storage import compressed_documents
from gpucost.storage.usage_documents import read_usage, usage_document
from tests.core.generated_observations import cluster_observations, metering_rules
from tests.core.single_node_cluster import observation

UNITS = (
    BusinessUnit("labelled", pod_labels={"label_team": "x"}),
    BusinessUnit("kept", namespace_labels={"label_owner": "y"}),
    BusinessUnit("named", namespaces=("a",), distribute="even"),
)
PRICES = PriceBook(
    [
        Price("on-demand", "node-hour", Decimal("98.32"), {"instance_type": "p4d*", "operating_system": "linux"}),
        Price("rates", "gpu-hour", Decimal("3.3"), {"gpu_model": "NVIDIA-A100*"}),
    ]
)


@settings(max_examples=150, deadline=None)
@given(cluster_observations(), metering_rules)
def test_stored_usage_equals_the_original(observation: Observation, metering: MeteringRules) -> None:
    usage = meter(observation, metering)
    rules = AttributionRules(Pricing(PRICES, ("on-demand", "rates")), UNITS, cost_labels={"team": "label_team"})
    items = [{"b": {"B": piece}} for piece in compressed_documents.pack(usage_document(usage))]
    stored = read_usage("c", datetime(2026, 11, 19, 10, tzinfo=UTC), compressed_documents.unpack(items))
    assert build_record(stored, rules) == build_record(usage, rules)


def test_free_gpus_without_room_for_a_job_are_stored() -> None:
    usage = meter(observation(), MeteringRules())
    (node,) = usage.nodes or ()
    nodes = (replace(node, domain_gpu_ms=Fraction(7, 3)),)
    items = [{"b": {"B": piece}} for piece in compressed_documents.pack(usage_document(replace(usage, nodes=nodes)))]
    (stored,) = read_usage("c", usage.hour, compressed_documents.unpack(items)).nodes or ()
    assert stored.domain_gpu_ms == Fraction(7, 3)


def test_claims_are_stored_and_pods_without_take_no_space() -> None:
    usage = meter(observation(), MeteringRules())
    assert "claims" not in usage_document(usage)
    (pod_usage,) = usage.pods
    device = ClaimedDevice("claim", "n1", "GPU-0", "", "gpu-0", "gpu.nvidia.com")
    claiming = replace(pod_usage, pod=replace(pod_usage.pod, claimed_device=device))
    items = [
        {"b": {"B": piece}}
        for piece in compressed_documents.pack(usage_document(replace(usage, pods=(pod_usage, claiming))))
    ]
    stored = read_usage("c", usage.hour, compressed_documents.unpack(items))
    first, second = (attributed.pod.claimed_device for attributed in stored.pods)
    assert first is None
    assert second is not None and (second.claim, second.driver) == ("claim", "gpu.nvidia.com")
