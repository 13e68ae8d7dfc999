"""The metrics of a demo: simulated period by period, and served by its Prometheus."""

import time
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from pathlib import Path

import requests

from gpucost.core.hours import HOUR, hours_between
from gpucost_devstack.demo_cache import DemoCache
from gpucost_devstack.metrics_segment import Segment, SegmentProcess, link_blocks, segments_of

WORKERS = 2
POLL_SECONDS = 0.05


class DemoMetrics:
    """Simulates periods and adds them to the storage of Prometheus.

    Args:
        storage: Prometheus' storage.
        work: folder for segments without a cache.
        cache: keeps segments, if there is one.
        scale: size of the fleet.
    """

    def __init__(self, storage: Path, work: Path, cache: DemoCache | None, scale: int) -> None:
        self.storage = storage
        self.url = ""
        """Prometheus' address, once it runs."""
        self._work = work
        self._cache = cache
        self._scale = scale
        self._segments = [] if cache is None else cache.segments()
        for segment in self._segments:
            link_blocks(self._folder(segment), storage)

    def segments_without_samples(self, hours: Iterable[datetime]) -> list[Segment]:
        """The segments to simulate, so that all of these hours have samples."""
        simulated = {hour for segment in self._segments for hour in hours_between(segment.start, segment.end)}
        return segments_of(hour for hour in hours if hour not in simulated)

    def start(self, segment: Segment, *, is_history: bool) -> SegmentProcess:
        """Start to simulate a segment."""
        return SegmentProcess(self._folder(segment), segment, self._scale, is_history=is_history)

    def add(self, process: SegmentProcess) -> None:
        """Add the segment of a process that has ended. A running Prometheus finds it within a minute.

        Raises:
            GpuCostError: the process failed.
        """
        process.wait()
        segment = process.segment
        self._segments.append(segment)
        link_blocks(process.folder, self.storage)
        if self._cache is not None:
            self._cache.add_segment(segment)

    def simulate(self, segments: Collection[Segment], report: Callable[[float], None] = lambda _: None) -> None:
        """Simulate segments, two at a time.

        Raises:
            GpuCostError: a process failed.
        """
        waiting, running = list(segments), list[SegmentProcess]()
        try:
            while waiting or running:
                while waiting and len(running) < WORKERS:
                    running.append(self.start(waiting.pop(), is_history=False))
                time.sleep(POLL_SECONDS)
                for process in [process for process in running if process.is_done()]:
                    running.remove(process)
                    self.add(process)
                    report(1 - (len(waiting) + len(running)) / len(segments))
        finally:
            for process in running:
                process.stop()

    def are_served(self, segment: Segment) -> bool:
        """Whether Prometheus has found the samples of every hour of a segment, which may come from several blocks."""
        minute = HOUR / 60
        query = {
            "query": "count(up)",
            "start": str((segment.start + HOUR - minute).timestamp()),
            "end": str((segment.end - minute).timestamp()),
            "step": str(HOUR.total_seconds()),
        }
        try:
            series = requests.get(f"{self.url}/api/v1/query_range", params=query, timeout=10).json()["data"]["result"]
        except (requests.RequestException, KeyError, ValueError):
            return False
        return any(len(counts["values"]) == (segment.end - segment.start) // HOUR for counts in series)

    def _folder(self, segment: Segment) -> Path:
        return self._work / segment.name if self._cache is None else self._cache.segment_folder(segment)
