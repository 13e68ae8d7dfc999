"""Series of collectors of ResourceSlices and claims, with the labels of their sources, become devices and pods."""

from collections.abc import Mapping
from decimal import Decimal

import pytest

from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.accelerators import DRA_DRIVERS
from gpucost.core.metering.observations import ClaimedDevice, ContainerRequest, PodObservation
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.metrics_sources import TrustedSeries, metrics_source_of
from gpucost.sources.prometheus.queries import Queries, any_of_values
from gpucost.sources.prometheus.resource_claims import ClaimTable
from gpucost.sources.prometheus.tables import Labels, Rows

HOUR = IntervalMs(-300_000, 3_600_000)
SCRAPES = Scrapes(tuple(range(-3_600_000, 7_200_000, 60_000)))
TARGET = {"job": "kube-dra-exporter", "instance": "10.0.0.30:8080"}
IN_EVERY_SCRAPE = Decimal(65)


def kube_dra_exporter(device: str, pod: str, claim: str) -> dict[str, Labels]:
    """The series of a device that a claim has, with the labels of Gradiant/kube-dra-exporter 0.1.0 (main_test.go)."""
    of_device = {"device_name": device, "driver": "gpu.nvidia.com", "pool": "pool"}
    of_slice = {"resourceslice_name": "slice", "node_name": "n1", "type": "gpu", "product_name": "", "parent_uuid": ""}
    of_claim = {"resourceclaim_name": claim, "exported_namespace": "team", "namespace": "monitoring"}
    return {
        "kube_resourceslice_device_capacity_memory_bytes": {**of_slice, **of_device, **TARGET},
        "kube_resourceclaim_status_allocated_device": {**of_claim, **of_device, **TARGET},
        "kube_resourceclaim_status_reserved_for_pod": {**of_claim, "pod_name": pod, "uid": f"uid-{pod}", **TARGET},
    }


def kube_state_metrics(device: str, pod: str, claim: str) -> dict[str, Labels]:
    """The same with the labels of kubernetes/kube-state-metrics#3020 (resourceslice.go, resourceclaim.go)."""
    of_claim = {"resourceclaim": claim, "namespace": "team"}
    consumer = {
        "consumer_apigroup": "",
        "consumer_resource": "pods",
        "consumer_name": pod,
        "consumer_uid": f"uid-{pod}",
    }
    return {
        "kube_resourceslice_device_info": {
            "resourceslice": "slice",
            "driver": "gpu.nvidia.com",
            "pool_name": "pool",
            "node_name": "n1",
            "device_name": device,
            **TARGET,
        },
        "kube_resourceclaim_allocation_device_info": {
            **of_claim,
            "request": "gpu",
            "driver": "gpu.nvidia.com",
            "pool": "pool",
            "device": device,
            **TARGET,
        },
        "kube_resourceclaim_status_reserved_for": {**of_claim, **consumer, **TARGET},
    }


def table_of(*objects: Mapping[str, Labels], count: Decimal = IN_EVERY_SCRAPE) -> ClaimTable:
    """A table of series that each have the same number of samples."""
    rows: dict[str, Rows] = {}
    for series in objects:
        for metric, labels in series.items():
            rows.setdefault(metric, []).append((labels, count))
    table = ClaimTable(rows)
    table.set_scrapes(dict.fromkeys(table.densest_series(), SCRAPES), HOUR)
    return table


@pytest.mark.parametrize("collector", [kube_dra_exporter, kube_state_metrics])
def test_collectors_name_devices_and_the_pods_that_hold_them(collector) -> None:  # type: ignore[no-untyped-def]
    table = table_of(collector("gpu-0", "whole", "a"), collector("gpu-1-mig-1g10gb-19-6", "part", "b"))
    assert [(device.node, device.name, device.sample_times) for device in table.offered_devices()] == [
        ("n1", "gpu-0", None),
        ("n1", "gpu-1-mig-1g10gb-19-6", None),
    ]
    whole, part = table.claiming_pods([("team", "a"), ("team", "b")], [], [])
    assert (whole.namespace, whole.pod, whole.uid, whole.node) == ("team", "whole", "uid-whole", "n1")
    assert whole.requests == (ContainerRequest("", "container", "gpu.nvidia.com", Decimal(1)),)
    assert part.requests == (ContainerRequest("", "container", "nvidia_com_mig_1g_10gb", Decimal(1)),)
    assert part.claimed_device is not None
    assert (part.claimed_device.claim, part.claimed_device.driver) == ("b", "gpu.nvidia.com")


def test_claims_that_exporters_report_and_requests_count_once() -> None:
    name = "requests-extended-resources-x7k2p"
    table = table_of(kube_dra_exporter("gpu-0", "reported", "a"), kube_dra_exporter("gpu-1", "requests", name))
    reported = PodObservation("team", "reported", "u", "n1", (), None, claimed_device=ClaimedDevice("a", "n1", "", ""))
    requesting = PodObservation("team", "requests", "v", "n1", (), None)
    assert table.claiming_pods([("team", "a")], [reported], [requesting]) == []
    (extended,) = table.claiming_pods([("team", "a")], [reported], [])
    assert extended.requests[0].resource == "nvidia_com_gpu"


def test_series_of_a_part_of_the_hour_have_the_times_of_their_samples() -> None:
    series = kube_dra_exporter("gpu-0", "p", "a")
    table = table_of(series, count=Decimal(30))
    assert table.needing_raw_samples() == {
        ("kube_resourceslice_device_capacity_memory_bytes", "node_name"): ["n1"],
        ("kube_resourceclaim_status_allocated_device", "resourceclaim_name"): ["a"],
        ("kube_resourceclaim_status_reserved_for_pod", "resourceclaim_name"): ["a"],
    }
    for metric, labels in series.items():
        table.add_raw_samples(metric, [Series(labels, ((60_000, "1"), (120_000, "1")))])
    times = {"kube-dra-exporter|/10.0.0.30:8080": (60_000, 120_000)}
    assert [device.sample_times for device in table.offered_devices()] == [times]
    assert [pod.held_samples for pod in table.claiming_pods([("team", "a")], [], [])] == [times]


def test_replicas_of_a_collector_double_nothing() -> None:
    first = kube_dra_exporter("gpu-0", "p", "a")
    second = {metric: {**labels, "instance": "10.0.0.31:8080"} for metric, labels in first.items()}
    table = table_of(first, second)
    assert len(table.offered_devices()) == len(table.claiming_pods([("team", "a")], [], [])) == 1


def test_no_series_make_an_empty_table() -> None:
    assert not ClaimTable({})


def test_matchers_of_kube_state_metrics_do_not_hide_other_collectors() -> None:
    metric = "kube_resourceslice_device_capacity_memory_bytes"
    trusted = TrustedSeries({"kube_state_metrics": {"job": ["kube-state-metrics"]}})
    query = Queries({}, [], trusted_series=trusted).claim_objects()
    assert metrics_source_of(metric) == "kube_dra_exporter"
    drivers = f"driver=~{any_of_values(DRA_DRIVERS)}"
    assert f"{metric}{{{drivers}}}" in query
    assert f'kube_resourceslice_device_info{{{drivers},job="kube-state-metrics"}}' in query
