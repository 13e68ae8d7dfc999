"""The quick start's cluster in a real Prometheus: a time-sliced T4 that three business units share."""

from collections.abc import Callable
from decimal import Decimal

import yaml

from gpucost.core.amounts import SCALE
from gpucost.settings_document import parse_settings
from gpucost_cli.doctor import examine_cluster
from gpucost_devstack.template import REPOSITORY
from tests.system.doctor_cluster import KSM, LABELS, Recent, bare
from tests.system.doctor_findings import GR, document, sources
from tests.system.metered_hours import Attribute
from tests.system.timeline import Timeline

PARAMETERS = yaml.safe_load((REPOSITORY / "cluster/parameters.yaml").read_text())
REPLICAS = PARAMETERS["gpu_group"]["time_slicing_replicas"]
NODE_LABELS = {
    **LABELS,
    "node_kubernetes_io_instance_type": PARAMETERS["gpu_group"]["instance_type"],
    "nvidia_com_gpu_product": "Tesla-T4-SHARED",
    "nvidia_com_gpu_count": "1",
    "nvidia_com_gpu_replicas": str(REPLICAS),
    "nvidia_com_gpu_sharing_strategy": "time-slicing",
}


def fill(timeline: Timeline, add_pod: Callable[[str, str], None]) -> None:
    """Add the node, the pods of the parameters, and the exporter's series: each pod has a copy of the GPU's value."""
    timeline.node(capacity={"nvidia_com_gpu": REPLICAS}, labels=NODE_LABELS)
    slot = 0
    for tenant in PARAMETERS["tenants"]:
        for number in range(tenant["pods"]):
            name = f"slices-{tenant['namespace']}-{number}"
            add_pod(tenant["namespace"], name)
            labels = {"exported_namespace": tenant["namespace"], "exported_pod": name, "vgpu": str(slot)}
            timeline.device(0.35, gpu=0, **labels)
            slot += 1


def test_business_units_pay_three_and_two_sevenths_of_the_gpu(attribute: Attribute) -> None:
    """Seven copies of the GPU's value are not added up: 35% of the GPU was used."""
    timeline = Timeline()
    timeline.up()
    fill(timeline, lambda namespace, name: timeline.pod(name, namespace=namespace))
    (record,) = attribute(timeline)
    assert record.totals is not None
    allocated, effective = (
        {
            namespace: sum(getattr(line, part) for line in record.lines if line.namespace == namespace)
            for namespace in ("bu-a", "bu-b", "bu-c")
        }
        for part in ("allocated_usd", "effective_usd")
    )
    expected = {"bu-a": Decimal(30) / 7, "bu-b": Decimal(20) / 7, "bu-c": Decimal(20) / 7}
    for name, usd in expected.items():  # at 10 USD an hour
        assert abs(Decimal(allocated[name]) / SCALE - usd) < Decimal("1e-9"), name
        assert abs(Decimal(effective[name]) / SCALE - usd * Decimal("0.35")) < Decimal("1e-9"), name
    assert record.totals.costs.allocated_usd == 10 * SCALE, "the seven pods hold the whole GPU"


def test_doctor_has_nothing_to_change(prometheus: Callable[[str], str]) -> None:
    cluster: Recent = bare()
    cluster.exporter_up("n1")
    cluster.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    fill(cluster, lambda namespace, name: _add_pod(cluster, namespace, name))
    settings = parse_settings(document(prometheus(cluster.text())))
    report = examine_cluster(settings.clusters[0], settings, cluster.now)
    assert report.possible
    assert [(check.name, check.finding) for check in report.checks if check.change] == []
    assert sources(report) == [(GR, "shared", Decimal(1))]


def _add_pod(cluster: Recent, namespace: str, name: str) -> None:
    cluster.pod(name, namespace=namespace)
    cluster.owned(name, "ReplicaSet", "app-1", namespace)
