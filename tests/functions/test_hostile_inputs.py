"""A thousand hostile inputs at each door change nothing for honest tenants: hours, alerts and reports stay equal."""

import json
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from gpucost.core.costs_by_model import ModelSum, TokenWeights
from gpucost.core.errors import InvalidMessageError, SettingsError, SourceError
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import HOUR
from gpucost.features.alerting.notifiers.slack import SlackNotifier
from gpucost.features.alerting.ports import RefusedMessageError
from gpucost.pipeline.attribute import compute_hours
from gpucost.runtime import messages
from gpucost.runtime.bounded_http import HttpResponse, ResponseTooLargeError
from gpucost.runtime.json_text import dumps
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.queries import STATISTIC_LABEL
from tests.functions.changed_documents import SEEDED, UTF8_TEXTS, changed, seeds, strange
from tests.functions.in_memory_hours import DAY, Ask, InMemoryHours
from tests.golden.scenarios.fleet import BASE
from tests.sources.changed_answers import NOW, AnsweredClient, RecordedAnswers, settings_of

CLUSTER = "runai-reservation"
"""Three pods of different tenants share a reserved GPU."""
HOSTILE, HONEST = "p0", ("p1", "p2")


@pytest.fixture(scope="module")
def answers() -> RecordedAnswers:
    return RecordedAnswers((CLUSTER,))


def attributed(answers: RecordedAnswers, change: Callable[[str, str], str] = lambda _, text: text) -> HourRecord:
    settings = settings_of(CLUSTER, inference={"enabled": True}, cost_labels=["team"])

    def answer(path: str, form: Mapping[str, str]) -> str:
        text = COUNTERS if "vllm:" in form["query"] else answers.answer(path, form)
        return change(form["query"], text)

    client = partial(AnsweredClient, answer=answer, sleep=lambda _: None)
    reader = metrics_reader(settings.clusters[0], settings, make_client=client, clock=lambda: NOW)
    (hour,) = compute_hours(reader, settings.clusters[0], settings, [BASE], now=NOW)
    return hour.record


def of_honest_tenants(record: HourRecord) -> str:
    """The lines of honest tenants, and what all pods cost together."""
    return dumps([{**line.figures(), "labels": line.labels} for line in record.lines if line.pod in HONEST]) + str(
        record.totals
    )


def paid_by_honest_tenants(record: HourRecord) -> list[tuple[str, str, int, int | None]]:
    """What honest tenants pay. How the use of a shared GPU is divided depends on everybody's share of it."""
    return [
        (line.pod, line.business_unit, line.allocated_gpu_hours, line.allocated_usd)
        for line in record.lines
        if line.pod in HONEST
    ]


def counter(pod: str, model: str, metric: str, reading: str) -> dict[str, Any]:
    labels = {STATISTIC_LABEL: f"vllm:{metric}_tokens_total", "namespace": "team", "pod": pod, "model_name": model}
    return {"metric": labels, "values": [[(BASE + HOUR).timestamp(), reading]]}


def matrix(rows: list[dict[str, Any]]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows, "stats": {}}})


ROWS = [counter(pod, "chat", metric, "900") for pod in (HOSTILE, *HONEST) for metric in ("prompt", "generation")]
COUNTERS = matrix(ROWS)


@pytest.mark.tools
@SEEDED
def test_counters_of_a_pod_change_no_other_pods_costs_and_tokens(part: int, answers: RecordedAnswers) -> None:
    def hostile(rng: random.Random, query: str, text: str) -> str:
        if "vllm:" not in query or "[65m]" not in query:
            return text
        rows = [row for row in ROWS if row["metric"]["pod"] != HOSTILE]
        for _ in range(rng.choice((1, 3, 80))):
            model = rng.choice(("chat", "x" * rng.randrange(600), f"m{rng.randrange(10**6)}", *UTF8_TEXTS))
            reading = rng.choice((*UTF8_TEXTS, str(rng.randrange(10**15))))
            rows.append(counter(HOSTILE, model, rng.choice(("prompt", "generation")), reading))
        return matrix(rows)

    honest = attributed(answers)
    assert len({model.key.model for model in honest.models}) == 1
    for rng in seeds(part):
        record = attributed(answers, partial(hostile, rng))
        assert of_honest_tenants(record) == of_honest_tenants(honest)
        if "tokens of all models are unknown" not in str(record.notes):
            assert sum(model.costs.allocated_usd for model in record.models) == sum(
                line.allocated_usd or 0 for line in record.lines
            )
            assert ModelSum.of([*record.models]).figures(TokenWeights())


@pytest.mark.tools
@SEEDED
def test_annotations_and_labels_of_a_pod_change_no_other_pods_costs(part: int, answers: RecordedAnswers) -> None:
    def hostile(rng: random.Random, query: str, text: str) -> str:
        if "kube_pod_annotations" not in query and "kube_pod_labels" not in query:
            return text
        document = json.loads(text)
        for row in document["data"]["result"]:
            labels = row["metric"]
            if labels.get("pod") == HOSTILE and "annotation_gpu_fraction" in labels:
                labels["annotation_gpu_fraction"] = rng.choice(UTF8_TEXTS)
                labels[f"annotation_{rng.randrange(99)}"] = "x" * rng.randrange(3000)
            elif labels.get("pod") == HOSTILE and labels.get("__name__") == "kube_pod_labels":
                labels["label_team"] = rng.choice(UTF8_TEXTS)
        return json.dumps(document)

    honest = attributed(answers)
    for rng in seeds(part):
        record = attributed(answers, partial(hostile, rng))
        assert paid_by_honest_tenants(record) == paid_by_honest_tenants(honest)
        assert record.status == "complete"


@SEEDED
def test_settings_are_parsed_or_refused_with_a_sentence(part: int) -> None:
    document = json.loads(settings_text())
    honest = parse_settings(json.dumps(document)).model_dump_json()
    for rng in seeds(part):
        try:
            parse_settings(json.dumps(changed(rng, document)))
        except SettingsError as error:
            assert len(str(error)) < 2000
    assert parse_settings(json.dumps(document)).model_dump_json() == honest


def settings_text() -> str:
    return json.dumps(
        {
            "clusters": [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9"}, "selector": {"a": "demo"}}],
            "pricing": {
                "sources": ["rates", "constant"],
                "gpu_hourly_usd": 10,
                "split": {"gpu": 1, "vcpu": 0.5, "gib": 0.1},
                "rates": [{"instance_type": "p5*", "node_hourly_usd": 55.5, "from": "2026-11-01"}],
            },
            "business_units": [{"name": "ml", "namespaces": ["ml-*"]}, {"name": "x", "pod_labels": {"team": "x"}}],
            "cost_labels": ["team"],
            "coverage": {"allocation": 0.5, "utilization": 0.1},
            "inference": {"enabled": True, "weights": {"prompt": 1, "generated": 5, "cached": 0.1}},
            "retention": {"pods": "400d"},
            "access": [{"principal": "arn:aws:iam::123456789012:role/finops", "roles": ["admin"]}],
        }
    )


CLOCK = datetime(2026, 11, 19, 12, 5, tzinfo=UTC)
EVENTS: list[dict[str, Any]] = [
    {
        "kind": "hours-due",
        "version": 1,
        "cluster": "demo",
        "first_hour": "2026-11-19T10:00:00Z",
        "hours": 2,
        "settings_version": 3,
        "origin": "schedule",
        "correlation_id": "a",
    },
    {"kind": "tick", "version": 1, "scheduled_time": "2026-11-19T12:00:00Z", "clusters": [], "correlation_id": "a"},
    {"version": 1, "scheduled_time": "2026-11-19T12:00:00Z"},
]
ALERT = {
    "status": "firing",
    "labels": {"alertname": "GpuDown", "cluster": "demo"},
    "annotations": {"summary": "a GPU"},
    "startsAt": "2026-11-19T11:00:00Z",
}


@SEEDED
def test_events_are_read_or_refused(part: int) -> None:
    readers: list[Callable[[str], object]] = [
        partial(messages.read_attribute_input, now=CLOCK),
        partial(messages.read_alert_input, now=CLOCK),
        partial(messages.read_external_alerts, now=CLOCK),
        *(partial(messages.read_message, model, now=CLOCK) for model in (messages.ScheduledTick, messages.PricesDue)),
    ]
    for rng in seeds(part):
        body = json.dumps(changed(rng, rng.choice(EVENTS)))
        body = body if rng.random() < 0.9 else body[: rng.randrange(len(body))]
        for read in readers:
            with suppress(InvalidMessageError):
                read(body)


@SEEDED
def test_hostile_alerts_leave_honest_ones_in_the_message(part: int) -> None:
    honest = messages.ExternalAlert.model_validate(ALERT, context={"now": CLOCK})
    for rng in seeds(part):
        alerts = [changed(rng, ALERT) for _ in range(3)]
        alerts.insert(rng.randrange(4), ALERT)
        received = messages.read_external_alerts(json.dumps({"kind": "amp-alerts", "alerts": alerts}), CLOCK)
        checked = received.check(CLOCK)
        assert honest in checked.valid.alerts
        assert len(checked.valid.alerts) + len(checked.refused.alerts) == len(alerts)
        assert all(alert.starts_at <= CLOCK + timedelta(hours=1) for alert in checked.valid.alerts)


def hostile_answer(rng: random.Random, *_: object, **__: object) -> HttpResponse:
    if rng.random() < 0.2:
        raise rng.choice((ResponseTooLargeError("too large"), ValueError("no"), TimeoutError(), ConnectionResetError()))
    status = rng.choice((200, 204, 301, 400, 404, 429, 500, 503, rng.randrange(100, 600)))
    wait = rng.choice((*UTF8_TEXTS, str(rng.randrange(10**9)), "Thu, 01 Jan 1970 00:00:00 GMT"))
    body = rng.choice((b"", b"\xff" * 9, b"<html>" * 999, json.dumps(strange(rng)).encode()))
    return HttpResponse(status, "\r\n", {"Retry-After": wait}, body)


@SEEDED
def test_answers_of_a_receiver_are_an_error_of_that_receiver(part: int) -> None:
    waits: list[float] = []
    for rng in seeds(part):
        receiver = SlackNotifier(
            "gpucost/slack",
            secret_value=lambda _: "https://hooks.slack.com/x",
            sleep=waits.append,
            post=partial(hostile_answer, rng),
        )
        with suppress(SourceError, RefusedMessageError):
            receiver.send([])
    assert all(0 <= wait <= 60 for wait in waits)


@pytest.mark.tools
@SEEDED
def test_requests_change_no_report(part: int, ask: Ask, day: InMemoryHours) -> None:
    def report() -> str:
        return ask("/v1/costs", {**DAY, "granularity": "day", "group_by": "business_unit"}).body

    routes = ("/v1/costs", "/v1/hours", "/v1/business-units", "/v1/inference", "/v1/x", "/allocation")
    names = (
        "start",
        "end",
        "window",
        "group_by",
        "granularity",
        "cluster",
        "limit",
        "cursor",
        "sort",
        "filter",
        "idle",
    )
    honest = report()
    for rng in seeds(part):
        query = {**DAY, **{rng.choice(names): str(strange(rng))[:2000] for _ in range(rng.randrange(1, 4))}}
        response = ask(rng.choice(routes), query)
        assert response.status < 500, (query, response.body)
    assert report() == honest
