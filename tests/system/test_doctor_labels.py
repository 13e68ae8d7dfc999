"""`gpucost doctor` checks the node labels that the price sources need."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from gpucost.settings_document import parse_settings
from gpucost_cli.doctor import ClusterReport, examine_cluster
from tests.system.doctor_cluster import LABELS, Recent, bare, healthy, pod
from tests.system.doctor_findings import faults, named, only

ZONE_ID = "node label topology.k8s.aws/zone-id"
RESERVATION = "node label karpenter.k8s.aws/capacity-reservation-id or eks.amazonaws.com/capacity-reservation-id"
Diagnose = Callable[[Recent, str], ClusterReport]


@pytest.fixture
def diagnose(prometheus: Callable[[str], str]) -> Diagnose:
    """Examine a cluster under a given `pricing` section."""

    def run(cluster: Recent, pricing: str) -> ClusterReport:
        url = prometheus(cluster.text())
        settings = parse_settings(f'clusters: [{{name: demo, prometheus: {{url: "{url}"}}}}]\npricing: {pricing}\n')
        return examine_cluster(settings.clusters[0], settings, cluster.now)

    return run


def test_spot_nodes_need_their_zone_id(diagnose: Diagnose) -> None:
    sources = "{sources: [spot, on-demand]}"
    spot = {"karpenter_sh_capacity_type": "spot"}
    report = diagnose(healthy(labels=spot), sources)
    only(
        report,
        ZONE_ID,
        status="missing",
        says="1 of 1 GPU nodes have no label for the zone ID (n1): spot prices do not apply",
        change="topology.k8s.aws/zone-id,",
    )
    assert faults(diagnose(healthy(labels={**spot, "topology_k8s_aws_zone_id": "usw2-az1"}), sources)) == {}


def test_zone_id_is_not_needed_without_spot_nodes_or_without_spot_prices(diagnose: Diagnose) -> None:
    for labels, pricing in (
        ({}, "{sources: [spot, on-demand]}"),
        ({"karpenter_sh_capacity_type": "spot"}, "{source: on-demand}"),
    ):
        assert named(diagnose(healthy(labels=labels), pricing), ZONE_ID).status == "not needed"


def test_nodes_of_a_capacity_block_need_their_reservation(diagnose: Diagnose) -> None:
    cluster = healthy(labels={"karpenter_sh_capacity_type": "reserved"})
    start, end = (cluster.now + timedelta(days=days) for days in (-1, 1))

    def pricing(instance_type: str) -> str:
        block = f"reservation_id: cr-0a1b, instances: 1, fee_usd: 100, instance_type: {instance_type}"
        block += f", from: '{start.isoformat()}', until: '{end.isoformat()}'"
        return f"{{sources: [capacity-block, on-demand], capacity_blocks: [{{{block}}}]}}"

    only(
        diagnose(cluster, pricing("g5.12xlarge")),
        RESERVATION,
        status="missing",
        says="a Capacity Block's fee",
        change="karpenter.k8s.aws/capacity-reservation-id,",
    )
    assert faults(diagnose(cluster, pricing("p5.48xlarge"))) == {}
    labeled = healthy(
        labels={"karpenter_sh_capacity_type": "reserved", "karpenter_k8s_aws_capacity_reservation_id": "cr-0a1b"}
    )
    assert faults(diagnose(labeled, pricing("g5.12xlarge"))) == {}


@pytest.mark.parametrize("source", ["on-demand", "list-price", "auto"])
def test_region_is_required_without_a_zone(diagnose: Diagnose, source: str) -> None:
    cluster = healthy(labels={"topology_kubernetes_io_zone": ""}, zone="")
    findings = faults(diagnose(cluster, f"{{source: {source}}}"))
    assert set(findings) == {"node label topology.kubernetes.io/zone", "node label topology.kubernetes.io/region"}


def test_region_is_that_of_the_provider_id(diagnose: Diagnose) -> None:
    """As in metering. The built-in list has no prices of us-west-2, so that the missing price is the finding."""
    cluster = healthy(labels={"topology_kubernetes_io_zone": ""})
    findings = faults(diagnose(cluster, "{source: list-price}"))
    assert set(findings) == {"node label topology.kubernetes.io/zone", "price of g5.12xlarge"}
    assert "do not have this type in us-west-2" in (findings["price of g5.12xlarge"].finding or "")


def test_shared_mig_slices_need_their_replicas(diagnose: Diagnose) -> None:
    resource = "nvidia_com_mig_1g_5gb_shared"
    cluster = bare()
    cluster.exporter_up("n1")
    labels = {
        **LABELS,
        "nvidia_com_gpu_product": "NVIDIA-A100-SXM4-40GB",
        "nvidia_com_gpu_replicas": "2",
        "node_kubernetes_io_instance_type": "custom.1gpu",
        "nvidia_com_gpu_count": "1",
    }
    cluster.node(capacity={resource: 14}, labels=labels)
    pod(cluster, "a", resource=resource)
    check = faults(diagnose(cluster, "{source: constant, gpu_hourly_usd: 1}"))[
        "node label nvidia.com/mig-1g.5gb.replicas"
    ]
    assert "nvidia.com/mig-1g.5gb.replicas]" in (check.change or "")
    assert "mig-1g.10gb" not in (check.change or "")
