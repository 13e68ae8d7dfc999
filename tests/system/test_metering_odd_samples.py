"""Non-numeric samples in a real Prometheus. Each only affects its own information, never the whole hour."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from gpucost.core.amounts import to_decimal
from gpucost.core.errors import MetricsResponseError
from gpucost.core.hour_record import HourRecord
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus import queries as names
from gpucost.sources.prometheus.client import PrometheusClient, Series
from tests.prometheus_clients import PrometheusClients
from tests.records import amount
from tests.system.metered_hours import assert_identity, fleet
from tests.system.remote_write import running_prometheus_with
from tests.system.timeline import HOUR, Timeline

ODD = ("NaN", "+Inf", "-Inf")
SIGNAL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
FAMILIES = (
    names.REQUESTS,
    names.INIT_REQUESTS,
    names.INIT_RUNNING,
    names.PHASE,
    names.POD_OWNER,
    names.POD_LABELS,
    names.SCHEDULED,
    names.COMPLETED,
    names.NODE_INFO,
    names.NODE_LABELS,
    names.CAPACITY,
    names.ALLOCATABLE,
    "kube_namespace_labels",
    "kube_replicaset_owner",
    SIGNAL,
    "up",
)
WHICH = {"all": range(1000), "one": (1830,), "last": (3570,)}
"""Seconds of the hour at which a sample is replaced. `all` replaces every sample."""
KSM = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}


def observed_cluster(cluster: str) -> Timeline:
    """A pod that stays, one with an init container, one that comes and goes, and a node that comes."""
    timeline = fleet(cluster=cluster, step=30)
    timeline.node("n2", 20, capacity={"nvidia_com_gpu": 2}, labels={"nvidia_com_gpu_count": "2"})
    timeline.pod("stays")
    timeline.pod("begins", 25, node="n2")
    timeline.pod("goes", 10, 70, finished_at=20)
    pod_labels = {"namespace": "team", "pod": "begins", "uid": "uid-begins", **KSM}
    init = {"container": "first", "node": "n2", "resource": "nvidia_com_gpu", "unit": "integer"}
    timeline.add(names.INIT_REQUESTS, 25, value=2, **pod_labels, **init)
    timeline.add(names.INIT_RUNNING, 25, value=0, container="first", **pod_labels)
    timeline.add(names.SCHEDULED, 25, value=int(HOUR.timestamp()) + 1500, **pod_labels)
    goes = pod_labels | {"pod": "goes", "uid": "uid-goes"}
    timeline.add(names.COMPLETED, 20, 70, value=int(HOUR.timestamp()) + 1200, **goes)
    for pod in (pod_labels, goes):
        timeline.add(names.POD_OWNER, owner_kind="ReplicaSet", owner_name="web-1", owner_is_controller="true", **pod)
        timeline.add(names.POD_LABELS, label_team="x", **pod)
    timeline.add(
        "kube_replicaset_owner", namespace="team", replicaset="web-1", owner_kind="Deployment", owner_name="web", **KSM
    )
    timeline.add("kube_namespace_labels", namespace="team", label_team="x", **KSM)
    timeline.device(0.5, gpu=10, exported_pod="stays", exported_namespace="team")
    timeline.device(0.5, 25, gpu=11, node="n2", exported_pod="begins", exported_namespace="team")
    return timeline


def with_odd_samples(timeline: Timeline, family: str, odd: str, which: str) -> Timeline:
    def spoil(row: str) -> str:
        labels, _, at = row.rsplit(" ", 2)
        second = float(at) - HOUR.timestamp()
        is_odd = (
            0 <= second < 3600 if which == "all" else any(abs(second - odd_second) < 15 for odd_second in WHICH[which])
        )
        return f"{labels} {odd} {at}" if is_odd else row

    assert timeline.families[family], family
    timeline.families[family] = [*map(spoil, timeline.families[family])]
    return timeline


def name_of(family: str, odd: str, which: str) -> str:
    return re.sub(r"\W", "", f"{family}{ODD.index(odd)}{which}")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """All cases as clusters of the same Prometheus."""
    together = Timeline()
    cases = [(name_of(*case), case) for case in product(FAMILIES, ODD, WHICH)]
    for name, case in [("sound", None), *cases]:
        timeline = observed_cluster(name) if case is None else with_odd_samples(observed_cluster(name), *case)
        for family, rows in timeline.families.items():
            together.families.setdefault(family, []).extend(rows)
    with running_prometheus_with(together.text()) as address:
        yield address


def attributed(url: str, cluster: str, client: PrometheusClients = PrometheusClient) -> HourRecord:
    settings = parse_settings(
        f'clusters: [{{name: test, prometheus: {{url: "{url}"}}, selector: {{cluster: {cluster}}}}}]\n'
        "pricing: {source: constant, gpu_hourly_usd: 10}\ncost_labels: [team]\n"
        "business_units: [{name: research, namespace_labels: {team: x}}]\n"
    )
    reader = metrics_reader(settings.clusters[0], settings, make_client=client)
    (record,) = attribute_hours(reader, settings.clusters[0], settings, [HOUR], now=datetime.now(UTC))
    assert_identity(record)
    return record


def held(record: HourRecord) -> dict[str, Decimal]:
    return {line.pod: to_decimal(line.allocated_gpu_hours) for line in record.lines}


@pytest.mark.parametrize("family", FAMILIES)
def test_non_numeric_sample_does_not_fail_the_hour(url: str, family: str) -> None:
    sound = attributed(url, "sound")
    assert set(held(sound)) == {"stays", "begins", "goes"}
    for odd, which in product(ODD, WHICH):
        record = attributed(url, name_of(family, odd, which))
        if (family, which) == ("up", "all"):
            assert record.status == "incomplete", "no sample shows a successful scrape"
            continue
        assert record.status == sound.status, (odd, which)
        if family not in {names.REQUESTS, names.INIT_REQUESTS, names.PHASE}:
            assert held(record).keys() == held(sound).keys(), (odd, which)
        if family in {names.CAPACITY, names.ALLOCATABLE}:
            assert any(f" is reported as {odd}; the value is left out" in note for note in record.notes)
            assert held(record) == held(sound)
            if which == "one":
                assert record.totals == sound.totals, "the node's capacity did not change"


@pytest.mark.parametrize("odd", ODD)
def test_non_numeric_use_is_unobserved(url: str, odd: str) -> None:
    record, sound = attributed(url, name_of(SIGNAL, odd, "all")), attributed(url, "sound")
    assert any("has values that are not numbers; they count as unmeasured" in note for note in record.notes)
    assert {line.pod: line.effective_usd for line in record.lines if line.effective_usd} == {}
    assert {line.effective_usd for line in sound.lines if line.pod == "stays"} == {amount(5)}
    single_odd = attributed(url, name_of(SIGNAL, odd, "one"))
    assert {line.effective_usd for line in single_odd.lines if line.pod == "stays"} == {amount(5)}


def test_invalid_statistic_gives_the_hour_or_a_single_sentence(url: str) -> None:
    """Counts are numbers unless a server is faulty. Then the answer is invalid, without an arithmetic error."""
    query_counts: dict[tuple[str, str], int] = {}
    spoil: tuple[str, str, str] | None = None

    class SpoiledClient(PrometheusClient):
        def query_range(self, query: str, *args: Any) -> list[Series]:
            failures = []
            for labels, samples in super().query_range(query, *args):
                stat = labels.get(names.STATISTIC_LABEL, names.NO_STATISTIC_LABEL)
                query_counts[query, stat] = len(samples)
                hit = spoil is not None and spoil[:2] == (query, stat)
                failures.append(
                    Series(labels, tuple((at, spoil[2]) for at, _ in samples) if hit and spoil else samples)
                )
            return failures

    attributed(url, "sound", SpoiledClient)
    statistics = {stat for _, stat in query_counts}
    assert {"capacity", "capacity-sum", "allocatable-sum", "info", "init-units", "namespace"} <= statistics
    for (query, stat), odd in product(list(query_counts), ODD):
        spoil = query, stat, odd
        try:
            attributed(url, "sound", SpoiledClient)
        except MetricsResponseError as error:
            assert "unusable" in str(error), (stat, odd)
            assert stat in {names.NO_STATISTIC_LABEL, "init-count", "info"} or stat.startswith("count"), (stat, odd)
