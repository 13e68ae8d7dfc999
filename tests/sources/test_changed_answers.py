"""No answer of a Prometheus makes a reader raise what its callers do not expect, whatever is changed in it."""

import json
import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from gpucost.core.errors import MetricsResponseError, SourceError
from gpucost.core.hours import HOUR, floor_day
from gpucost.features.recommendations.sources import (
    PrometheusDisruption,
    PrometheusGpuMemory,
    PrometheusRequestLatency,
    PrometheusWaitingPods,
)
from gpucost.pipeline.attribute import AttributedHour, compute_hours
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.connection import ClusterReader
from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader
from gpucost.sources.prometheus.queries import STATISTIC_LABEL
from tests.cases import tried
from tests.golden.scenarios.fleet import BASE
from tests.sources.changed_answers import CLUSTERS, NOW, AnsweredClient, Changes, RecordedAnswers, settings_of

HOURS = tried(5000)
DAY = floor_day(NOW) - timedelta(days=1)
Answer = Callable[[str, Mapping[str, str]], str]


@pytest.fixture(scope="module")
def answers() -> RecordedAnswers:
    return RecordedAnswers()


def attributed(cluster: str, answer: Answer) -> AttributedHour:
    settings = settings_of(cluster, cost_labels=["team"])
    client = partial(AnsweredClient, answer=answer, sleep=lambda _: None)
    reader = metrics_reader(settings.clusters[0], settings, make_client=client, clock=lambda: NOW)
    (hour,) = compute_hours(reader, settings.clusters[0], settings, [BASE], now=NOW)
    return hour


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_unchanged_answers_are_complete_hours(cluster: str, answers: RecordedAnswers) -> None:
    hour = attributed(cluster, answers.answer)
    assert hour.record.status == "complete"
    assert bool(hour.record.lines) is (cluster != "energy-idle")


@pytest.mark.tools
def test_changed_answers_raise_only_errors_of_the_source(answers: RecordedAnswers) -> None:
    outcomes = {"complete": 0, "incomplete": 0, "refused": 0}
    for seed in range(HOURS):
        cluster = random.Random(seed).choice(CLUSTERS)
        try:
            outcomes[attributed(cluster, Changes(seed, answers.answer).answer).record.status] += 1
        except SourceError:
            outcomes["refused"] += 1
        except Exception as error:
            pytest.fail(f"seed {seed}, cluster {cluster}: {type(error).__name__}: {error}")
    assert min(outcomes["complete"], outcomes["refused"]) > HOURS // 10, "the changes must neither be trivial nor fatal"


def answer_with(*rows: Mapping[str, str]) -> Answer:
    """An answer that has a sample at the end of every hour of the day."""
    times = [(DAY + HOUR * number).timestamp() for number in range(1, 25)]
    result = [{"metric": row, "values": [[time, "3"] for time in times]} for row in rows]
    text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result, "stats": {}}})
    vectors = json.loads(text)
    vectors["data"] |= {"resultType": "vector"}
    for row in vectors["data"]["result"]:
        row["value"] = row.pop("values")[-1]
    return lambda path, _: text if path == "query_range" else json.dumps(vectors)


POD = {"namespace": "ml", "pod": "train-0", "uid": "u", "container": "main", "resource": "nvidia_com_gpu"}
READERS: dict[str, tuple[type[ClusterReader], Callable[[Any], object], Answer]] = {
    "waiting pods": (
        PrometheusWaitingPods,
        lambda reader: reader.waits(DAY),
        answer_with({STATISTIC_LABEL: "scrapes"}, *({**POD, STATISTIC_LABEL: stat} for stat in ("count", "units"))),
    ),
    "GPU memory": (
        PrometheusGpuMemory,
        lambda reader: reader.peaks(DAY),
        answer_with(*({**POD, "pod": pod, STATISTIC_LABEL: "DCGM_FI_DEV_FB_USED"} for pod in "ab")),
    ),
    "request latency": (
        PrometheusRequestLatency,
        lambda reader: reader.latencies(DAY, settings_of("a").inference),
        answer_with(*({**POD, STATISTIC_LABEL: stat} for stat in ("requests", "p95"))),
    ),
    "disruption": (
        PrometheusDisruption,
        lambda reader: reader.week(DAY),
        answer_with(
            {STATISTIC_LABEL: "eligible", "reason": "empty"},
            {STATISTIC_LABEL: "allowed", "nodepool": "gpu", "reason": "empty"},
        ),
    ),
    "limits": (
        NodePoolLimitsReader,
        lambda reader: reader.read([DAY, DAY + HOUR]),
        answer_with(
            {STATISTIC_LABEL: "pool-limit", "nodepool": "gpu", "resource_type": "nvidia.com/gpu"},
            {
                STATISTIC_LABEL: "quota-hard",
                "namespace": "ml",
                "resource": "requests.nvidia.com/gpu",
                "resourcequota": "q",
            },
        ),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_changed_answers_to_other_readers_raise_only_errors_of_the_source(name: str) -> None:
    create, read, answer = READERS[name]
    cluster = settings_of("a").clusters[0]
    refused = 0
    for seed in range(500):
        client = partial(AnsweredClient, answer=Changes(seed, answer, share=0.9).answer, sleep=lambda _: None)
        try:
            read(create(cluster, client=client))
        except SourceError:
            refused += 1
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
    assert 0 < refused < 450


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ("label is a number", {"metric": {"pod": 1}, "values": [[1, "1"]]}),
        ("label is null", {"metric": {"pod": None}, "values": [[1, "1"]]}),
        ("label is a list", {"metric": {"pod": ["a"]}, "values": [[1, "1"]]}),
        ("time is text", {"metric": {}, "values": [["1", "1"]]}),
        ("time is a truth value", {"metric": {}, "values": [[True, "1"]]}),
        ("time is beyond all calendars", {"metric": {}, "values": [[1e15, "1"]]}),
        ("time is before the epoch", {"metric": {}, "values": [[-1, "1"]]}),
        ("times are out of order", {"metric": {}, "values": [[2, "1"], [1, "1"]]}),
        ("time appears twice", {"metric": {}, "values": [[1, "1"], [1, "2"]]}),
        ("there is no sample", {"metric": {}, "values": []}),
        ("sample is a number", {"metric": {}, "values": [[1, 1]]}),
    ],
)
def test_answer_in_another_format_is_refused(change: str, row: Mapping[str, object]) -> None:
    text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [row], "stats": {}}})
    client = AnsweredClient("http://127.0.0.1:9", cluster="demo", answer=lambda *_: text)
    with pytest.raises(MetricsResponseError, match="in a format that is not Prometheus'"):
        client.query_range("up", BASE, BASE)
