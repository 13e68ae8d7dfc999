"""Which devices are looked at sample by sample: those whose sums and counts of an hour do not tell all."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import Interval, Scrapes
from gpucost.core.metering.signals import SIGNALS
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.devices import DeviceTable
from gpucost.sources.prometheus.queries import STAT, UNLABELED
from gpucost.sources.prometheus.tables import Rows

START = to_epoch_ms(datetime(2026, 11, 19, 10, tzinfo=UTC))
HOUR = Interval(START, START + HOUR_MS)
BUSY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
EXPORTER = "dcgm|/n1:9400"
FASTER_AT_FIRST = Scrapes((*range(START, START + 900_000, 30_000), *range(START + 900_000, HOUR.end, 60_000)))
EVERY_MINUTE = Scrapes(tuple(START + at * 60_000 for at in range(-5, 65)))
LABELS = {"job": "dcgm", "instance": "n1:9400", "Hostname": "n1", "UUID": "GPU-0", "namespace": "team", "pod": "p"}


def table(count: int = 60, total: str = "30", **more: Decimal) -> DeviceTable:
    stats = {"count": Decimal(count), **more}
    rows: dict[str, Rows] = {UNLABELED: [(LABELS, Decimal(total))]}
    rows |= {f"{stat} {BUSY}": [({**LABELS, STAT: f"{stat} {BUSY}"}, value)] for stat, value in stats.items()}
    return DeviceTable(0, [SIGNALS[BUSY]], rows, {"n1": "n1"})


def test_sum_and_count_of_a_device_are_one_series() -> None:
    found = table()
    assert found.needing_raw_samples({EXPORTER: EVERY_MINUTE}, HOUR, set()) == {}
    (one,) = found.series()
    assert (one.node, one.uuid, one.instance) == ("n1", "GPU-0", EXPORTER)
    assert (one.sample_count, int(one.total), one.samples, one.namespace, one.pod) == (60, 30, None, "team", "p")


@pytest.mark.parametrize(
    ("seen", "scrapes", "passing"),
    [
        (table(), EVERY_MINUTE, {("team", "p")}),
        (table(59), EVERY_MINUTE, set()),
        (table(peak=Decimal("1.5")), EVERY_MINUTE, set()),
        (table(total="NaN"), EVERY_MINUTE, set()),
        (table(75), FASTER_AT_FIRST, set()),
    ],
    ids=["its pod was not there all hour", "a scrape missed it", "above full use", "no number", "another interval"],
)  # fmt: skip
def test_what_does_not_tell_all_is_looked_at(
    seen: DeviceTable, scrapes: Scrapes, passing: set[tuple[str, str]]
) -> None:
    (one,) = seen.series()
    assert seen.needing_raw_samples({EXPORTER: scrapes}, HOUR, passing) == {"UUID": {"GPU-0": one.sample_count}}


def test_a_series_that_two_closer_looks_brought_is_one() -> None:
    found = table(59)
    raw = Series({**LABELS, "__name__": BUSY}, ((START + 60_000, "0.5"),))
    only_before = Series({**LABELS, "__name__": BUSY, "pod": "before"}, ((START - 60_000, "0.5"),))
    for _ in range(2):
        found.add_raw_samples([raw, only_before], HOUR)
    assert [(one.pod, one.sample_count, len(one.samples or ())) for one in found.series()] == [
        ("p", 59, 1),
        ("before", 0, 1),
    ]
