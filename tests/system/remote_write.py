"""Sends samples to a running Prometheus by remote write, including staleness markers.

promtool cannot load markers. The protocol is small: a protobuf `WriteRequest` in a Snappy block (Prometheus, "Remote
Write 1.0"); a Snappy block of literals alone is a valid one, so neither needs a package.
"""

import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import requests

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.series import SimulatedSeries
from gpucost_devstack.prometheus import VICTORIA_METRICS_VARIABLE, running_prometheus
from gpucost_devstack.victoria_metrics import flush

STALE = struct.pack("<Q", 0x7FF0000000000002)
"""The NaN that marks the end of a series (Prometheus, `model/value`)."""
BLOCK_FLAGS = ("--storage.tsdb.min-block-duration=24h", "--storage.tsdb.max-block-duration=24h")
"""Prometheus accepts samples that are older than the newest ones by at most half of this."""
RECEIVER_FLAGS = (
    "--web.enable-remote-write-receiver",
    "--storage.tsdb.min-block-duration=480h",
    "--storage.tsdb.max-block-duration=480h",
)
"""Flags of a Prometheus that accepts samples of ten days."""
SERIES_PER_REQUEST = 2000
REQUEST_BYTES = 4_000_000
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LITERAL = 1 << 16
"""Bytes of a literal, the most whose length takes two bytes."""


def send(url: str, series: Sequence[SimulatedSeries], base_ms: int, scrapes: Mapping[str, Sequence[int]]) -> None:
    """Write series in order of time. A series that is missing from a scrape of its instance is marked as stale.

    Args:
        url: a Prometheus with the remote-write receiver.
        series: with times from the base.
        base_ms: the base, milliseconds since the epoch.
        scrapes: all attempted scrapes by instance, in milliseconds from the base.
    """
    by_time: dict[int, list[tuple[bytes, bytes]]] = {}
    for single_series in series:
        labels = _labels({"__name__": single_series.metric, **single_series.labels})
        encoded = {at: struct.pack("<d", float(_value(value, base_ms))) for at, value in single_series.samples}
        before = False
        for at in scrapes[single_series.labels["instance"]]:
            if at in encoded:
                by_time.setdefault(at, []).append((labels, encoded[at]))
            elif before:
                by_time.setdefault(at, []).append((labels, STALE))
            before = at in encoded
    for at in sorted(by_time):
        samples = by_time[at]
        for first in range(0, len(samples), SERIES_PER_REQUEST):
            request = samples[first : first + SERIES_PER_REQUEST]
            _post(url, b"".join(_field(1, labels + _sample(value, base_ms + at)) for labels, value in request))
    if os.environ.get(VICTORIA_METRICS_VARIABLE):
        flush(url)


@contextmanager
def running_prometheus_with(text: str) -> Iterator[str]:
    """Run a Prometheus with the samples of an OpenMetrics text. Yields its URL."""
    with running_prometheus(None, *RECEIVER_FLAGS) as url:
        send_whole_series(url, _series_of(text), base_ms=0)
        yield url


@contextmanager
def running_scenarios(scenarios: Iterable[Scenario], base: datetime) -> Iterator[str]:
    """Run a Prometheus with the samples of simulated clusters. Yields its URL."""
    with running_prometheus(None, *RECEIVER_FLAGS) as url:
        series = ((cluster.name, each) for cluster in scenarios for each in openmetrics.series(cluster))
        send_whole_series(url, series, round(base.timestamp()) * 1000)
        yield url


def _series_of(text: str) -> Iterator[tuple[str, SimulatedSeries]]:
    """The series of an OpenMetrics text, in which every sample has a time."""
    samples: dict[str, dict[int, str]] = {}
    for row in text.splitlines():
        if not row.startswith("#"):
            series, value, seconds = row.rsplit(" ", 2)
            samples.setdefault(series, {})[round(float(seconds) * 1000)] = value
    for series, by_time in samples.items():
        metric, _, inside = series.partition("{")
        labels = {name: _unescaped(quoted) for name, quoted in _LABEL.findall(inside)}
        yield labels.pop("cluster", ""), SimulatedSeries(metric, labels, sorted(by_time.items()))


def _unescaped(quoted: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], quoted)


def send_whole_series(url: str, labelled_series: Iterable[tuple[str, SimulatedSeries]], base_ms: int) -> None:
    """Write series, each with the name of its cluster, series by series and without staleness markers.

    promtool loads the same samples from a file in several times the processor time.

    Args:
        url: a Prometheus with the remote-write receiver, which accepts samples of the whole period.
        labelled_series: clusters, which may be blank, and their series, with times from the base.
        base_ms: the base, milliseconds since the epoch.
    """
    encoded_samples: dict[tuple[int, str], bytes] = {}  # most series have the same samples at the same times
    encoded_series: dict[tuple[tuple[int, str], ...], bytes] = {}
    parts: list[bytes] = []
    size = 0
    for cluster, single_series in labelled_series:
        samples = tuple(single_series.samples)
        if samples not in encoded_series:
            for sample in samples:
                if sample not in encoded_samples:
                    at, value = sample
                    encoded_samples[sample] = _sample(struct.pack("<d", float(_value(value, base_ms))), base_ms + at)
            encoded_series[samples] = b"".join([encoded_samples[sample] for sample in samples])
        labels = _labels({"__name__": single_series.metric, "cluster": cluster, **single_series.labels})
        parts.append(_field(1, labels + encoded_series[samples]))
        size += len(parts[-1])
        if size > REQUEST_BYTES:
            _post(url, b"".join(parts))
            parts, size = [], 0
    _post(url, b"".join(parts))
    if os.environ.get(VICTORIA_METRICS_VARIABLE):
        flush(url)


def _sample(value: bytes, at_ms: int) -> bytes:
    """A sample of a series."""
    return _field(2, b"\x09" + value + b"\x10" + _varint(at_ms))


def _post(url: str, body: bytes) -> None:
    answer = requests.post(
        f"{url}/api/v1/write",
        data=_snappy(body),
        headers={
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        },
        timeout=30,
    )
    assert answer.status_code == 204, answer.text


def _labels(labels: Mapping[str, str]) -> bytes:
    """`TimeSeries.labels`, sorted. A time series of `WriteRequest` consists of them and a sample."""
    return b"".join(
        _field(1, _field(1, name.encode()) + _field(2, value.encode()))
        for name, value in sorted(labels.items())
        if value
    )


def _value(text: str, base_ms: int) -> float:
    return base_ms / 1000 + float(text[1:]) if text.startswith("@") else float(text)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _snappy(body: bytes) -> bytes:
    chunks = (body[at : at + _LITERAL] for at in range(0, len(body), _LITERAL))
    return _varint(len(body)) + b"".join(b"\xf4" + struct.pack("<H", len(chunk) - 1) + chunk for chunk in chunks)
