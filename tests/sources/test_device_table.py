"""Devices need raw samples if their sums and counts of an hour are not enough."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.signals import SIGNALS
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.devices import DeviceTable
from gpucost.sources.prometheus.queries import NO_STATISTIC_LABEL, STATISTIC_LABEL
from gpucost.sources.prometheus.tables import Rows

START = to_epoch_ms(datetime(2026, 11, 19, 10, tzinfo=UTC))
HOUR = IntervalMs(START, START + HOUR_MS)
BUSY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
EXPORTER = "dcgm|/n1:9400"
FASTER_AT_FIRST = Scrapes((*range(START, START + 900_000, 30_000), *range(START + 900_000, HOUR.end, 60_000)))
EVERY_MINUTE = Scrapes(tuple(START + minute * 60_000 for minute in range(-5, 65)))
LABELS = {"job": "dcgm", "instance": "n1:9400", "Hostname": "n1", "UUID": "GPU-0", "namespace": "team", "pod": "p"}


def table(count: int = 60, total: str = "30", **more: Decimal) -> DeviceTable:
    stats = {"count": Decimal(count), **more}
    rows: dict[str, Rows] = {NO_STATISTIC_LABEL: [(LABELS, Decimal(total))]}
    rows |= {
        f"{stat} {BUSY}": [({**LABELS, STATISTIC_LABEL: f"{stat} {BUSY}"}, value)] for stat, value in stats.items()
    }
    return DeviceTable(0, [SIGNALS[BUSY]], rows, {"n1": "n1"})


def test_sum_and_count_of_a_device_form_a_single_series() -> None:
    device_table = table()
    assert device_table.needing_raw_samples({EXPORTER: EVERY_MINUTE}, HOUR, set()) == {}
    (device,) = device_table.series()
    assert (device.node, device.uuid, device.scrape_target) == ("n1", "GPU-0", EXPORTER)
    assert (device.sample_count, int(device.sample_sum), device.samples, device.namespace, device.pod) == (
        60,
        30,
        None,
        "team",
        "p",
    )


@pytest.mark.parametrize(
    ("device_table", "scrapes", "partial_pods"),
    [
        (table(), EVERY_MINUTE, {("team", "p")}),
        (table(59), EVERY_MINUTE, set()),
        (table(peak=Decimal("1.5")), EVERY_MINUTE, set()),
        (table(total="NaN"), EVERY_MINUTE, set()),
        (table(75), FASTER_AT_FIRST, set()),
    ],
    ids=["pod of a part of the hour", "missing sample", "above full use", "not a number", "changed interval"],
)
def test_incomplete_or_implausible_devices_need_raw_samples(
    device_table: DeviceTable, scrapes: Scrapes, partial_pods: set[tuple[str, str]]
) -> None:
    (device,) = device_table.series()
    needed = device_table.needing_raw_samples({EXPORTER: scrapes}, HOUR, partial_pods)
    assert needed == {"UUID": {"GPU-0": device.sample_count}}


def test_repeated_raw_samples_do_not_duplicate_series() -> None:
    device_table = table(59)
    raw = Series({**LABELS, "__name__": BUSY}, ((START + 60_000, "0.5"),))
    only_before = Series({**LABELS, "__name__": BUSY, "pod": "before"}, ((START - 60_000, "0.5"),))
    for _ in range(2):
        device_table.add_raw_samples([raw, only_before], HOUR)
    assert [(device.pod, device.sample_count, len(device.samples or ())) for device in device_table.series()] == [
        ("p", 59, 1),
        ("before", 0, 1),
    ]
