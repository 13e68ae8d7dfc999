"""Simulates the demo's metrics of a period as blocks of Prometheus' storage, in a process of its own.

Several processes use several processor cores, and leave the process that serves the API responsive. This module is run
as `python -m gpucost_devstack.metrics_segment FOLDER START END SCALE PERIOD`. The folder exists once it is complete.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from gpucost.core.errors import GpuCostError
from gpucost.core.hours import HOUR, consecutive_runs, floor_day, format_timestamp
from gpucost_devstack.child_process import terminating_with_this_process
from gpucost_devstack.fleet import demo, openmetrics
from gpucost_devstack.prometheus import create_blocks

HISTORY = "history"


@dataclass(frozen=True, order=True, slots=True)
class Segment:
    """A period within one UTC day, whose metrics are simulated together."""

    start: datetime
    end: datetime

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"{self.start:%Y%m%dT%H}-{self.end:%Y%m%dT%H}"

    @property
    def day(self) -> datetime:
        """The UTC day."""
        return floor_day(self.start)


def segments_of(hours: Iterable[datetime]) -> list[Segment]:
    """Group hours, in order, into segments."""
    return [
        Segment(run[0], run[-1] + HOUR)
        for _, hours_of_day in groupby(hours, floor_day)
        for run in consecutive_runs(hours_of_day)
    ]


class SegmentProcess:
    """A process that simulates a segment.

    Args:
        folder: the folder to create, with the blocks.
        segment: the period.
        scale: size of the fleet.
        is_history: whether it is before the last days. Then its process has a low priority.
    """

    def __init__(self, folder: Path, segment: Segment, scale: int, *, is_history: bool = False) -> None:
        self.folder, self.segment = folder, segment
        times = (format_timestamp(segment.start), format_timestamp(segment.end))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder), *times, str(scale), HISTORY if is_history else "recent"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C ends the demo, which ends this process
        )
        self._watch = ExitStack()
        self._watch.enter_context(terminating_with_this_process(-self._process.pid))

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def is_done(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def wait(self) -> None:
        """Wait until the segment is complete.

        Raises:
            GpuCostError: the process failed. The message says why.
        """
        errors = self._end()
        if self._process.returncode:
            reason = errors.strip().rpartition("\n")[2]
            raise GpuCostError(f"simulating the metrics of {self.segment.name} failed: {reason[-300:]}")

    def stop(self) -> None:
        """End the process and its promtool. Nothing of an incomplete segment remains."""
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self._process.pid, signal.SIGTERM)
        self._end()

    def _end(self) -> str:
        """Wait for the end of the process, and return what it wrote to its standard error."""
        is_closed = self._process.stderr is None or self._process.stderr.closed
        errors = "" if is_closed else self._process.communicate()[1]
        self._watch.close()
        return errors


def write_segment(folder: Path, segment: Segment, scale: int) -> None:
    """Simulate a segment into a new folder."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as partial:
        metrics = Path(partial) / "metrics.om"
        scenarios = demo.scenarios(segment.start, segment.end, scale=scale)
        openmetrics.write(scenarios, segment.start, metrics)
        blocks = Path(partial) / "blocks"
        blocks.mkdir()
        create_blocks(metrics, blocks)
        blocks.rename(folder)


def link_blocks(folder: Path, storage: Path) -> None:
    """Add a segment's blocks to the storage of Prometheus, which finds new blocks every minute."""
    for block in folder.iterdir():
        if block.is_file():
            _link(str(block), str(storage / block.name))
            continue
        partial = storage / f"{block.name}.tmp-for-creation"  # Prometheus removes such folders when it starts
        shutil.copytree(block, partial, copy_function=_link)
        partial.rename(storage / block.name)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the incomplete folder is removed
    os.nice(10 if sys.argv[5] == HISTORY else 0)
    first, last = (datetime.fromisoformat(text).astimezone(UTC) for text in sys.argv[2:4])
    write_segment(Path(sys.argv[1]), Segment(first, last), int(sys.argv[4]))
