"""The demo's simulated clusters in a Prometheus of this machine, without the embedded AWS."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gpucost.core.errors import GpuCostError
from gpucost.core.hours import HOUR, floor_day, floor_hour, hours_between
from gpucost.core.pricing.prices import Price
from gpucost.storage.ports import Table
from gpucost.storage.price_book import PriceStore
from gpucost_devstack.demo_metrics import DemoMetrics
from gpucost_devstack.fleet import demo as fleet
from gpucost_devstack.installation import find_program
from gpucost_devstack.prometheus import running_prometheus, usable_port

BLOCK_FLAGS = ("--storage.tsdb.min-block-duration=2h", "--storage.tsdb.max-block-duration=2h")
"""With these, Prometheus does not merge blocks, which would take processor time in the background."""
PORT = 19090
"""The port of Prometheus if it is free. The settings have its address, so that another one is a new version."""
NEW_BLOCKS_SECONDS = 150.0
"""Prometheus looks for new blocks every minute."""


class SimulatedFleet:
    """Simulates the clusters up to the last whole hour.

    Args:
        metrics: the simulated samples, and the Prometheus that serves them.
        start: the first hour.
    """

    def __init__(self, metrics: DemoMetrics, start: datetime) -> None:
        self._metrics = metrics
        self._start = start

    def settings_text(self) -> str:
        """Return the demo's settings for these clusters. Alerts have no receivers: the page shows them."""
        document: dict[str, Any] = fleet.settings_document(dict.fromkeys(fleet.CLUSTERS, self._metrics.url))
        document["alerts"] = {key: rules for key, rules in document["alerts"].items() if key == "rules"}
        return json.dumps(document, indent=2)

    def simulate(self, now: datetime, report: Callable[[float], None] = lambda _: None) -> None:
        """Simulate the hours that have ended and have no samples yet.

        Raises:
            GpuCostError: a process failed, or Prometheus does not find the samples.
        """
        segments = self._metrics.segments_without_samples(hours_between(self._start, floor_hour(now)))
        self._metrics.simulate(segments, report)
        if not self._metrics.url:
            return
        deadline = time.monotonic() + NEW_BLOCKS_SECONDS
        for segment in segments:
            while not self._metrics.are_served(segment):
                if time.monotonic() > deadline:
                    raise GpuCostError("Prometheus did not find the samples of the simulated clusters")
                time.sleep(1)

    def add_spot_prices(self, table: Table, now: datetime) -> None:
        """Put the simulated spot prices into the price book of a ledger."""
        prices = spot_prices(self._start, floor_hour(now) + HOUR)
        fetched_at = now.replace(microsecond=0)
        PriceStore(table).merge_prices("spot", prices, rated_until=floor_day(self._start), now=fetched_at)


@contextmanager
def running_fleet(
    now: datetime, period: timedelta, report: Callable[[float], None] = lambda _: None
) -> Iterator[SimulatedFleet]:
    """Simulate the clusters of a period before now, and serve the samples from a Prometheus.

    Args:
        now: the current time.
        period: how far back the samples go.
        report: is called with the part that is done.

    Raises:
        GpuCostError: Prometheus is not installed or does not start.
    """
    for program in ("prometheus", "promtool"):
        find_program(program)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="gpucost-simulated-")))
        storage, work = folder / "prometheus", folder / "segments"
        for path in (storage, work):
            path.mkdir()
        metrics = DemoMetrics(storage, work, None, 1)
        simulated = SimulatedFleet(metrics, floor_hour(now) - period)
        simulated.simulate(now, report)
        url = running_prometheus(None, *BLOCK_FLAGS, storage=storage, port=usable_port(PORT))
        metrics.url = running.enter_context(url)
        yield simulated


def spot_prices(start: datetime, end: datetime) -> list[Price]:
    """Return the simulated spot prices of a period as the price book has them."""
    return [
        Price(
            source="spot",
            unit="node-hour",
            amount=price.hourly_usd,
            applies_to={
                "instance_type": price.instance_type,
                "zone_id": price.zone_id,
                "capacity_type": "spot",
                "operating_system": "linux",
            },
            valid_from=price.since,
            fetched_at=price.since,
        )
        for price in fleet.spot_prices(floor_day(start), end)
    ]
