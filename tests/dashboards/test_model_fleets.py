"""The rules of models on simulated clusters (`gpucost_devstack/fleet`) with steady load, compared with the truth."""

from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from gpucost.settings_document import parse_settings
from gpucost_cli.rules import documents
from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.inference_servers import (
    INFERENCES_PER_EXECUTION,
    KINDS,
    QUEUE_SECONDS_PER_REQUEST,
    true_models,
)
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.scenarios.inference import scenarios
from gpucost_devstack.fleet.scraping import MINUTE_MS
from tests.dashboards import promtool
from tests.dashboards.promtool import expectation

STEADY = (
    "steady",
    "adapters",
    "not-called",
    "kinds",
    "two-servers",
    "two-of-one-kind",
    "two-jobs",
    "labels",
    "prefill-decode",
    "missing-counters",
)
"""Clusters in which nothing changes, so that each minute has a sixtieth of the hour's tokens."""
MINUTE = 12


def test_tokens_gpus_and_load_by_model_match_the_truth(tmp_path: Path) -> None:
    groups: list[Any] = []
    input_series: list[dict[str, str]] = []
    expectations: list[dict[str, Any]] = []
    for scenario in scenarios():
        if scenario.name.removeprefix("inference-") in STEADY:
            groups += _groups(scenario)
            input_series += _series(scenario)
            expectations += _expectations(scenario)
    assert len(expectations) == 6 * len(STEADY)
    assert promtool.run(tmp_path, groups, input_series, expectations) == ""


def _groups(scenario: Scenario) -> documents.Groups:
    settings = parse_settings(
        f"clusters: [{{name: {scenario.name}, prometheus: {{url: 'http://127.0.0.1:9'}}, "
        f"selector: {{cluster: {scenario.name}}}}}]\npricing: {{source: constant, gpu_hourly_usd: 12}}\n"
        + scenario.settings
    )
    return documents.recording_groups(settings, settings.clusters, datetime(2026, 11, 20, tzinfo=UTC))


def _series(scenario: Scenario) -> Iterator[dict[str, str]]:
    """The samples of the hour's first minutes, in promtool's notation with a step each minute."""
    for series in openmetrics.series(scenario):
        samples = {at // MINUTE_MS: text for at, text in series.samples if 0 <= at // MINUTE_MS <= MINUTE}
        if samples and not any(text.startswith("@") for text in samples.values()):
            values = " ".join(samples.get(minute, "_") for minute in range(MINUTE + 1))
            yield promtool.series(series.metric, {"cluster": scenario.name, **series.labels}, values)


def _expectations(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """Tokens and requests per second, GPUs and load, by server and model; what is unknown is absent."""
    tokens: dict[tuple[str, str, str], Fraction] = {}
    requests: dict[tuple[str, str], Fraction] = {}
    gpus: dict[tuple[str, str], Fraction] = {}
    for (_, _, server, true_name, _), truth in true_models(scenario, 0).items():
        if not server or not true_name or server == "dynamo":
            continue  # no model without tokens; frontends are left out
        name = "" if server == "tgi" else true_name
        gpus[server, name] = gpus.get((server, name), Fraction(0)) + truth.gpu_hours.value
        for kind in KINDS:
            count = truth.counts.get(kind)
            if count is not None and kind != "requests":
                tokens[server, name, kind] = tokens.get((server, name, kind), Fraction(0)) + count.value / 3600
            elif count is not None:
                requests[server, name] = requests.get((server, name), Fraction(0)) + count.value / 3600
    cluster = f'cluster="{scenario.name}"'

    def labels(server: str, model: str, **more: str) -> dict[str, str]:
        return {"server": server, **({"model": model} if model else {}), **more}

    yield expectation(
        f"sum by (server, model, kind) (model:gpucost_tokens:rate5m{{{cluster}}})",
        MINUTE,
        *((labels(server, model, kind=kind), float(rate)) for (server, model, kind), rate in tokens.items()),
    )
    yield expectation(
        f"sum by (server, model) (model:gpucost_requests:rate5m{{{cluster}}})",
        MINUTE,
        *((labels(server, model), float(rate)) for (server, model), rate in requests.items()),
    )
    yield expectation(
        f"sum by (server, model) (model:gpucost_gpus:sum{{{cluster}}})",
        MINUTE,
        *((labels(server, model), float(held)) for (server, model), held in gpus.items()),
    )
    requests_by_pod: dict[tuple[str, str], dict[str, Fraction]] = {}
    for each in scenario.servers:
        for load in each.loads if each.kind != "dynamo" else ():
            pods = requests_by_pod.setdefault((each.kind, "" if each.kind == "tgi" else load.model), {})
            pods[each.pod.name] = pods.get(each.pod.name, Fraction(0)) + Fraction(load.served("requests", (0, 1)))
    queued = {key: sum(pods.values()) / 60 for key, pods in requests_by_pod.items() if key[0] != "nim"}
    batches = {
        (kind, name): [INFERENCES_PER_EXECUTION if kind == "triton" else running for running in pods.values()]
        for (kind, name), pods in requests_by_pod.items()
    }
    for record, figures in (
        ("queue_seconds_sum:rate5m", {key: rate * QUEUE_SECONDS_PER_REQUEST for key, rate in queued.items()}),
        ("batch_size:sum", {key: sum(sizes) for key, sizes in batches.items()}),
        ("batch_size:count", {key: len(sizes) for key, sizes in batches.items()}),
    ):
        yield expectation(
            f"sum by (server, model) (model:gpucost_{record}{{{cluster}}})",
            MINUTE,
            *((labels(server, model), float(figure)) for (server, model), figure in figures.items()),
        )
