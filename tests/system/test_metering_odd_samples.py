"""Samples that are no numbers, in a real Prometheus: each costs at most what it would have told, never the hour."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from gpucost.adapters.prometheus import metrics_reader
from gpucost.adapters.prometheus import queries as names
from gpucost.adapters.prometheus.client import PrometheusClient, Series
from gpucost.domain.model import HourRecord
from gpucost.errors import MetricsAnswerError
from gpucost.services.attribute import attribute_hours
from gpucost.settings import parse_settings
from local.prometheus import running_prometheus
from tests.system.metered_hours import assert_identity, fleet
from tests.system.timeline import HOUR, Timeline

ODD = ("NaN", "+Inf", "-Inf")
SIGNAL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
FAMILIES = (
    names.REQUESTS, names.INIT_REQUESTS, names.INIT_RUNNING, names.PHASE, names.POD_OWNER, names.POD_LABELS,
    names.SCHEDULED, names.COMPLETED, names.NODE_INFO, names.NODE_LABELS, names.CAPACITY, names.ALLOCATABLE,
    "kube_namespace_labels", "kube_replicaset_owner", SIGNAL, "up",
)  # fmt: skip
WHICH = {"all": range(1000), "one": (1830,), "last": (3570,)}
"""Seconds of the hour of which a sample is spoilt; all of the hour's."""
KSM = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}


def seen(cluster: str) -> Timeline:
    """A pod that stays, one with an init container, one that comes and goes, and a node that comes."""
    timeline = fleet(cluster=cluster, step=30)
    timeline.node("n2", 20, capacity={"nvidia_com_gpu": 2}, labels={"nvidia_com_gpu_count": "2"})
    timeline.pod("stays")
    timeline.pod("begins", 25, node="n2")
    timeline.pod("goes", 10, 70, finished_at=20)
    own = {"namespace": "team", "pod": "begins", "uid": "uid-begins", **KSM}
    init = {"container": "first", "node": "n2", "resource": "nvidia_com_gpu", "unit": "integer"}
    timeline.add(names.INIT_REQUESTS, 25, value=2, **own, **init)
    timeline.add(names.INIT_RUNNING, 25, value=0, container="first", **own)
    timeline.add(names.SCHEDULED, 25, value=int(HOUR.timestamp()) + 1500, **own)
    goes = own | {"pod": "goes", "uid": "uid-goes"}
    timeline.add(names.COMPLETED, 20, 70, value=int(HOUR.timestamp()) + 1200, **goes)
    for pod in (own, goes):
        timeline.add(names.POD_OWNER, owner_kind="ReplicaSet", owner_name="web-1", owner_is_controller="true", **pod)
        timeline.add(names.POD_LABELS, label_team="x", **pod)
    timeline.add("kube_replicaset_owner", namespace="team", replicaset="web-1", owner_kind="Deployment",
                 owner_name="web", **KSM)  # fmt: skip
    timeline.add("kube_namespace_labels", namespace="team", label_team="x", **KSM)
    timeline.device(0.5, gpu=10, exported_pod="stays", exported_namespace="team")
    timeline.device(0.5, 25, gpu=11, node="n2", exported_pod="begins", exported_namespace="team")
    return timeline


def spoilt(timeline: Timeline, family: str, odd: str, which: str) -> Timeline:
    def spoil(row: str) -> str:
        labels, _, at = row.rsplit(" ", 2)
        second = float(at) - HOUR.timestamp()
        hit = 0 <= second < 3600 if which == "all" else any(abs(second - one) < 15 for one in WHICH[which])
        return f"{labels} {odd} {at}" if hit else row

    assert timeline.families[family], family
    timeline.families[family] = [*map(spoil, timeline.families[family])]
    return timeline


def name_of(family: str, odd: str, which: str) -> str:
    return re.sub(r"\W", "", f"{family}{ODD.index(odd)}{which}")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All cases as clusters of one Prometheus."""
    together = Timeline()
    cases = [(name_of(*case), case) for case in product(FAMILIES, ODD, WHICH)]
    for name, case in [("sound", None), *cases]:
        timeline = seen(name) if case is None else spoilt(seen(name), *case)
        for family, rows in timeline.families.items():
            together.families.setdefault(family, []).extend(rows)
    path = tmp_path_factory.mktemp("odd") / "metrics.om"
    path.write_text(together.text())
    with running_prometheus(path) as address:
        yield address


def attributed(url: str, cluster: str) -> HourRecord:
    settings = parse_settings(
        f'clusters: [{{name: test, prometheus: {{url: "{url}"}}, selector: {{cluster: {cluster}}}}}]\n'
        "pricing: {source: constant, gpu_hourly_usd: 10}\ncost_labels: [team]\n"
        "business_units: [{name: research, namespace_labels: {team: x}}]\n"
    )
    reader = metrics_reader(settings.clusters[0], settings)
    (record,) = attribute_hours(reader, settings.clusters[0], settings, [HOUR], now=datetime.now(UTC))
    assert_identity(record)
    return record


def held(record: HourRecord) -> dict[str, Decimal]:
    return {line.pod: line.allocated_gpu_hours for line in record.lines}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sample_that_is_no_number_never_costs_the_hour(url: str, family: str) -> None:
    sound = attributed(url, "sound")
    assert set(held(sound)) == {"stays", "begins", "goes"}
    for odd, which in product(ODD, WHICH):
        record = attributed(url, name_of(family, odd, which))
        if (family, which) == ("up", "all"):
            assert record.status == "incomplete", "nobody says that anything was scraped"
            continue
        assert record.status == sound.status, (odd, which)
        if family not in {names.REQUESTS, names.INIT_REQUESTS, names.PHASE}:
            assert held(record).keys() == held(sound).keys(), (odd, which)
        if family in {names.CAPACITY, names.ALLOCATABLE}:
            assert any(f" is told as {odd}; left out" in note for note in record.notes)
            assert held(record) == held(sound)
            if which == "one":
                assert record.totals == sound.totals, "no change of what the node has"


@pytest.mark.parametrize("odd", ODD)
def test_use_that_is_no_number_is_not_observed(url: str, odd: str) -> None:
    record, sound = attributed(url, name_of(SIGNAL, odd, "all")), attributed(url, "sound")
    assert any("holds values that are no numbers; they count as not observed" in note for note in record.notes)
    assert {line.pod: line.effective_usd for line in record.lines if line.effective_usd} == {}
    assert {line.effective_usd for line in sound.lines if line.pod == "stays"} == {5}
    one = attributed(url, name_of(SIGNAL, odd, "one"))
    assert {line.effective_usd for line in one.lines if line.pod == "stays"} == {5}


def test_whatever_statistic_is_no_number_the_hour_or_one_sentence_is_the_answer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts are numbers unless a server is broken; then the answer is unusable, and no error of arithmetic."""
    asked: dict[tuple[str, str], int] = {}
    spoil: tuple[str, str, str] | None = None
    original = PrometheusClient.query_range

    def query_range(self: PrometheusClient, query: str, *args: Any) -> list[Series]:
        found = []
        for labels, samples in original(self, query, *args):
            stat = labels.get(names.STAT, names.UNMARKED)
            asked[query, stat] = len(samples)
            hit = spoil is not None and spoil[:2] == (query, stat)
            found.append(Series(labels, tuple((at, spoil[2]) for at, _ in samples) if hit and spoil else samples))
        return found

    monkeypatch.setattr(PrometheusClient, "query_range", query_range)
    attributed(url, "sound")
    statistics = {stat for _, stat in asked}
    assert {"capacity", "capacity-sum", "allocatable-sum", "info", "init-units", "namespace"} <= statistics
    for (query, stat), odd in product(list(asked), ODD):
        spoil = query, stat, odd
        try:
            attributed(url, "sound")
        except MetricsAnswerError as error:
            assert "unusable" in str(error), (stat, odd)
            assert stat in {names.UNMARKED, "init-count", "info"} or stat.startswith("count"), (stat, odd)
