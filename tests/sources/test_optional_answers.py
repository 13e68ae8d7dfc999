"""What is optional fails alone: tokens, labels and fractions are unknown, with a note, and costs are complete."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from gpucost.core.errors import MetricsTooLargeError, MetricsUnavailableError
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import HOUR
from gpucost.pipeline.attribute import compute_hours
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.queries import STATISTIC_LABEL
from tests.golden.scenarios.fleet import BASE
from tests.sources.changed_answers import NOW, TOO_LARGE, AnsweredClient, RecordedAnswers, settings_of

INFERENCE = {"inference": {"enabled": True}}
BY_LABEL = {"business_units": [{"name": "vision", "pod_labels": {"team": "vision"}}], "cost_labels": ["team"]}


@pytest.fixture(scope="module")
def answers() -> RecordedAnswers:
    return RecordedAnswers(("worked-example", "runai-reservation"))


def attributed(
    answers: RecordedAnswers, cluster: str, changed: Mapping[str, str | Exception] | None = None, **sections: Any
) -> HourRecord:
    """Attribute an hour with other answers to the queries that contain a text."""

    def answer(path: str, form: Mapping[str, str]) -> str:
        other = [text for part, text in (changed or {}).items() if part in form["query"]]
        if other and isinstance(other[0], Exception):
            raise other[0]
        return str(other[0]) if other else answers.answer(path, form)

    settings = settings_of(cluster, **sections)
    client = partial(AnsweredClient, answer=answer, sleep=lambda _: None)
    reader = metrics_reader(settings.clusters[0], settings, make_client=client, clock=lambda: NOW)
    (hour,) = compute_hours(reader, settings.clusters[0], settings, [BASE], now=NOW)
    return hour.record


def counters(reading: str) -> str:
    metric = {STATISTIC_LABEL: "vllm:prompt_tokens_total", "namespace": "a", "pod": "b"}
    rows = [{"metric": metric, "values": [[(BASE + HOUR).timestamp(), reading]]}]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows, "stats": {}}})


TIMEOUT = MetricsUnavailableError("did not answer within 60 s, and the time for all queries is used up (query: up)")


@pytest.mark.parametrize(
    "answer", [TOO_LARGE, '{"status": "error", "error": "no"}', counters("many"), counters("NaN"), TIMEOUT]
)
def test_counters_that_cannot_be_read_leave_costs_complete(answer: str | Exception, answers: RecordedAnswers) -> None:
    without = attributed(answers, "worked-example")
    record = attributed(answers, "worked-example", {"vllm:": answer}, **INFERENCE)
    assert (record.status, record.lines, record.totals) == ("complete", without.lines, without.totals)
    notes = [note for note in record.notes if note not in without.notes]
    if answer != counters("NaN"):  # one pod's counter, whose samples are read again
        assert [note.partition(": ")[0] for note in notes] == ["tokens of all models are unknown"]
        assert "query" not in notes[0]


def test_labels_that_are_too_large_leave_costs_complete(answers: RecordedAnswers) -> None:
    without = attributed(answers, "worked-example")
    record = attributed(answers, "worked-example", {'"gpucost_stat","pod"': TOO_LARGE}, **BY_LABEL)
    assert (record.status, record.totals) == ("complete", without.totals)
    assert [note.partition(": ")[0] for note in record.notes] == [
        "labels of pods and namespaces are unknown, so no cost has a unit or label by them"
    ]


def test_fractions_that_are_too_large_leave_costs_complete(answers: RecordedAnswers) -> None:
    without = attributed(answers, "runai-reservation")
    record = attributed(answers, "runai-reservation", {"kube_pod_annotations": TOO_LARGE})
    assert record.totals is not None
    assert without.totals is not None
    assert (record.status, record.totals.capacity and record.totals.capacity.node_cost_usd) == (
        "complete",
        without.totals.capacity and without.totals.capacity.node_cost_usd,
    )
    assert "fractions of reserved GPUs are unknown" in record.notes[0]


def test_required_answer_that_times_out_ends_the_hour(answers: RecordedAnswers) -> None:
    with pytest.raises(MetricsUnavailableError):
        attributed(answers, "worked-example", {"kube_pod_container_resource_requests": TIMEOUT})


def test_required_answer_that_is_too_large_ends_the_hour(answers: RecordedAnswers) -> None:
    with pytest.raises(MetricsTooLargeError):
        attributed(answers, "worked-example", {"kube_pod_container_resource_requests": TOO_LARGE})
