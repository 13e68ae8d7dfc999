"""Limits of node pools and quotas, from a real Prometheus into the real table; hours never depend on them."""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR as HOUR_STEP
from gpucost.core.ledger import Limits, PoolLimit, Quota
from gpucost.pipeline.attribute import LimitsRecorder
from gpucost.settings import CoreSettings
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.limits_store import LimitsStore
from tests.conftest import DynamoTable
from tests.prometheus_clients import PrometheusClients, client_without_waits
from tests.system.timeline import HOUR, Timeline

NOW = HOUR + timedelta(hours=3)
GPU = "nvidia.com/gpu"


def document(url: str) -> CoreSettings:
    return parse_settings(f"""
clusters: [{{name: demo, prometheus: {{url: "{url}"}}, selector: {{cluster: demo}}}}]
pricing: {{source: constant, gpu_hourly_usd: 12}}
""")


def keep(
    table: DynamoTable, settings: CoreSettings, hours: int = 2, *, client: PrometheusClients = PrometheusClient
) -> list[Limits]:
    store = LimitsStore(DynamoDBTable(table.client, table.name))
    recorder = LimitsRecorder(partial(NodePoolLimitsReader, client=client), store)
    recorder.record(settings.clusters[0], settings, [HOUR + HOUR_STEP * number for number in range(hours)], NOW)
    return store.limits_between("demo", HOUR - HOUR_STEP, HOUR + 5 * HOUR_STEP)


def test_both_karpenter_metric_versions_and_quotas_are_recorded(
    table: DynamoTable, prometheus: Callable[[str], str]
) -> None:
    seen = Timeline(cluster="demo")
    seen.add("karpenter_nodepools_usage", -65, 30, 6, nodepool="new", resource_type=GPU, instance="a")
    seen.add("karpenter_nodepools_usage", 30, 125, 4, nodepool="new", resource_type=GPU, instance="b")
    seen.add("karpenter_nodepools_limit", -65, 125, 8, nodepool="new", resource_type=GPU, instance="a")
    seen.add("karpenter_nodepools_limit", -65, 125, 640, nodepool="new", resource_type="cpu", instance="a")
    seen.add("karpenter_nodepool_usage", -65, 125, 2, nodepool="old", resource_type="nvidia.com/mig-1g.5gb")
    seen.add("karpenter_nodepool_limit", -65, 50, 7, nodepool="old", resource_type="nvidia.com/mig-1g.5gb")
    for kind, value in (("hard", 4), ("used", 3)):
        for instance in ("a", "b"):  # two replicas say the same
            labels: dict[str, Any] = {"namespace": "ml", "resourcequota": "gpus", "type": kind, "instance": instance}
            seen.add("kube_resourcequota", value=value, resource=f"requests.{GPU}", **labels)
        # Where the scrape's own namespace took the name:
        seen.add(
            "kube_resourcequota",
            value=value,
            namespace="kube-system",
            exported_namespace="cv",
            resourcequota="q",
            resource=f"requests.{GPU}",
            type=kind,
        )
        seen.add(
            "kube_resourcequota", value=9, namespace="ml", resource="requests.cpu", resourcequota="gpus", type=kind
        )
    other = Timeline(cluster="other", families=seen.families)
    other.add("karpenter_nodepools_usage", value=99, nodepool="theirs", resource_type=GPU)

    quotas = (Quota("cv", "q", GPU, Decimal(4), Decimal(3)), Quota("ml", "gpus", GPU, Decimal(4), Decimal(3)))
    new = PoolLimit("new", GPU, Decimal(4), Decimal(8))
    old = "old", "nvidia.com/mig-1g.5gb", Decimal(2)
    assert keep(table, document(prometheus(seen.text()))) == [
        Limits("demo", HOUR, (new, PoolLimit(*old, Decimal(7))), quotas),
        Limits("demo", HOUR + HOUR_STEP, (new, PoolLimit(*old, None)), quotas),
    ]


def test_cluster_without_limits_records_nothing(table: DynamoTable, prometheus: Callable[[str], str]) -> None:
    seen = Timeline(cluster="demo")
    seen.up()
    assert keep(table, document(prometheus(seen.text()))) == []


def test_hours_do_not_wait_for_limits(table: DynamoTable) -> None:
    assert keep(table, document("http://127.0.0.1:9"), client=client_without_waits) == []


def test_limits_beyond_the_item_size_are_omitted(table: DynamoTable) -> None:
    store = LimitsStore(DynamoDBTable(table.client, table.name))
    names = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(10_000)]
    quotas = tuple(Quota(name, "gpus", GPU, Decimal(4), None) for name in names)
    with pytest.raises(SourceError, match="0 pools and 10000 quotas"):
        store.put(Limits("demo", HOUR, quotas=quotas), NOW + timedelta(days=400))
    assert store.limits_between("demo", HOUR, HOUR + HOUR_STEP) == []
