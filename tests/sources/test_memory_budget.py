"""The estimated sizes of responses, compared with the memory that they take."""

import gc
import tracemalloc
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest
from pydantic_core import from_json

from gpucost.core.errors import HoursTooLargeError, MetricsTooLargeError
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.device_use import device_hours, group_by_device
from gpucost.core.metering.signals import SIGNALS
from gpucost.sources.prometheus.client import _parse_rows
from gpucost.sources.prometheus.devices import DeviceTable
from gpucost.sources.prometheus.memory_budget import (
    MAX_RESPONSE_MEMORY,
    MIB,
    MemoryBudget,
    device_samples_size,
    exact_series_size,
    parsed_size,
    pod_samples_size,
    series_size,
)
from gpucost.sources.prometheus.pods import PodTable
from gpucost.sources.prometheus.queries import NO_STATISTIC_LABEL, PHASE, REQUESTS, SCHEDULED
from gpucost.sources.prometheus.tables import Rows

pytestmark = pytest.mark.tools  # seconds

SIZE = MIB // 4
START = 1_795_082_400
SLACK = 16 << 10
"""Spare capacity of lists, and memory that the parser keeps."""


@pytest.fixture(scope="module", autouse=True)
def _frozen_heap() -> None:
    """Leave what other tests made out of the collections of `traced`: each took a second after thousands of tests."""
    gc.collect()
    gc.freeze()  # until the end of the run (tests/conftest.py)


def rows(row: Callable[[int], str]) -> bytes:
    texts: list[str] = []
    while sum(map(len, texts[-1:])) * len(texts) < SIZE:
        texts.append(row(len(texts)))
    return rows_of(texts)


def rows_of(texts: Iterable[str]) -> bytes:
    return f"[{','.join(texts)}]".encode()


def series(labels: str, samples: str = '[1795082400,"0.25"]') -> str:
    return f'{{"metric":{{{labels}}},"values":[{samples}]}}'


SERIES = {
    "few labels": rows(lambda i: series(f'"uid":"{i:08}"')),
    "no label": rows(lambda _: series("")),
    "many labels": rows(lambda i: series(",".join(f'"label_{k}":"value-{k}-{i}"' for k in range(30)))),
    "unique labels": rows(lambda i: series(",".join(f'"l{i}x{k}":"v{k}x{i}"' for k in range(9)))),
    "large label set": rows(lambda i: series(",".join(f'"l{i}x{k}":"v{k}"' for k in range(12_000)))),
    "many samples": rows(lambda i: series('"a":"b"', ",".join(f'[1795082{k:03}.5,"{i + k}.25"]' for k in range(1000)))),
    "texts": rows(lambda i: series(f'"a{i}":"{"x" * 9000}"')),
    "wide texts": rows(lambda i: series(f'"a{i}":"😀{"x" * 9000}"')),
    "escaped wide texts": rows(lambda i: series(f'"a{i}":"\\ud83d\\ude00{"x" * 9000}"')),
}
OTHERS = {
    "lists": rows(lambda _: "[]"),
    "dicts": rows(lambda _: "{}"),
    "small dicts": rows(lambda _: '{"a":1}'),
    "numbers": rows(lambda i: f"{i}.5"),
    "strings": rows(lambda i: f'"{i:05x}"'),
    "nested": b"[" * 150 + b"]" * 150,
}


def traced(work: Callable[[], Any]) -> tuple[Any, int, int]:
    """The result of some work, the bytes that it keeps, and its peak."""
    gc.collect()
    tracemalloc.start()
    try:
        result = work()
        return result, *tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", [*SERIES, *OTHERS])
def test_parsed_response_takes_at_most_its_estimate(name: str) -> None:
    body = (SERIES | OTHERS)[name]
    from_json(body)
    _, _, peak = traced(lambda: from_json(body))
    assert peak <= parsed_size(body) + SLACK


@pytest.mark.parametrize("name", SERIES)
def test_series_take_at_most_their_estimate(name: str) -> None:
    body = SERIES[name]
    parsed, kept, peak = traced(lambda: _parse_rows(from_json(body)))
    assert kept - SLACK <= exact_series_size(parsed, body) <= series_size(parsed, body)
    assert peak - SLACK <= parsed_size(body) + exact_series_size(parsed, body)


def test_estimate_of_typical_responses_is_close() -> None:
    """Otherwise large clusters would be refused without need."""
    labels = (
        '"namespace":"team-{0}","pod":"training-job-{1}-abcde","uid":"{1:08}-7f3c-4a5b-9d2e-1f0a","node":"node-{2}"'
    )
    body = rows(lambda i: series(labels.format(i % 20, i, i // 8) + ',"resource":"nvidia_com_gpu","job":"kube"'))
    parsed, kept, _ = traced(lambda: _parse_rows(from_json(body)))
    assert exact_series_size(parsed, body) < 1.7 * kept


def test_too_large_response_is_refused_before_parsing() -> None:
    body = b'{"metric":{}},' * (MAX_RESPONSE_MEMORY // 300)
    with pytest.raises(MetricsTooLargeError, match="above 176"):
        MemoryBudget().admit(body)


def test_responses_that_are_too_large_together_are_refused() -> None:
    budget = MemoryBudget(10 * MIB)
    budget.charge(6 * MIB)
    with budget.release_at_end():
        budget.charge(4 * MIB)
        with pytest.raises(HoursTooLargeError, match="more than 10 MiB"):
            budget.admit(b"[1]")
    budget.admit(b"[1]")
    with pytest.raises(HoursTooLargeError):
        budget.charge(5 * MIB)
    budget.reset()
    budget.charge(10 * MIB)


def test_size_is_computed_exactly_if_memory_is_short() -> None:
    body = SERIES["many labels"]
    parsed = _parse_rows(from_json(body))
    exact = exact_series_size(parsed, body)
    assert exact < series_size(parsed, body)
    MemoryBudget(exact).charge_series(parsed, body)
    with pytest.raises(HoursTooLargeError):
        MemoryBudget(exact - 1).charge_series(parsed, body)


def raw_series(samples: int, **labels: str) -> str:
    """Values have as many digits as exporters report."""
    metric = ",".join(f'"{name}":"{value}"' for name, value in labels.items())
    values = (f'[{START + 15 * i}.{i % 1000:03},"0.{(i * 7919 + len(metric)) % 10**16:016}"]' for i in range(samples))
    return series(metric, ",".join(values))


def test_raw_samples_of_devices_take_at_most_their_estimate() -> None:
    """They are kept for metering, which computes what each scrape covers."""
    signals = (SIGNALS["DCGM_FI_PROF_GR_ENGINE_ACTIVE"],)
    window = IntervalMs(START * 1000, START * 1000 + 3_600_000)
    device = {"__name__": signals[0].name, "job": "dcgm", "instance": "n:9400", "Hostname": "n"}
    text = rows_of(
        raw_series(240, **device, UUID=f"GPU-{i}", exported_namespace="team", exported_pod=f"pod-{i}")
        for i in range(50)
    )

    def metered() -> object:
        table = DeviceTable(0, signals, {}, {})
        table.add_raw_samples(_parse_rows(from_json(text)), window)
        devices = device_hours(group_by_device(table.series()), {}, window)
        return table, devices, [(device.samples, device.observed_times) for device in devices]

    metered()
    _, kept, _ = traced(metered)
    counted = device_samples_size(_parse_rows(from_json(text)))
    assert counted / 1.5 < kept <= counted


def test_raw_samples_of_pods_take_at_most_their_estimate() -> None:
    """Of their times, only the first and the last are kept, so their number does not matter."""
    pods = [
        {"namespace": "team", "pod": f"pod-{i}", "uid": f"uid-{i:08}", "node": "n", "job": "k", "instance": "k:1"}
        for i in range(200)
    ]
    request = {"container": "main", "resource": "nvidia_com_gpu"}
    requests: dict[str, Rows] = {NO_STATISTIC_LABEL: [(pod | request, Decimal(240)) for pod in pods]}
    text = rows_of(
        of_pod
        for pod in pods
        for of_pod in (
            raw_series(240, __name__=REQUESTS, **pod, **request),
            raw_series(240, __name__=PHASE, **pod, phase="Running"),
            raw_series(240, __name__=PHASE, **pod, phase="Failed"),
            raw_series(240, __name__=SCHEDULED, **pod),
        )
    )

    def with_samples(*, read: bool) -> object:
        table = PodTable(requests, (), {})
        if read:
            table.add_raw_samples([pod["uid"] for pod in pods], _parse_rows(from_json(text)))
        return table

    with_samples(read=True)
    _, without, _ = traced(lambda: with_samples(read=False))
    _, kept, _ = traced(lambda: with_samples(read=True))
    counted = pod_samples_size(_parse_rows(from_json(text)))
    assert counted / 2 < kept - without <= counted
