"""The simulated clusters of the tests in one Prometheus, at a fixed time.

Its storage is made once for each content of the simulator. Later runs, and copies of the repository with a planted
fault, find it in `.cache`.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import requests

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.scenarios import all_scenarios
from gpucost_devstack.fleet.scenarios.lifetimes import mixed_lifetimes
from gpucost_devstack.fleet.scenarios.outages import with_scrape_gap
from gpucost_devstack.fleet.scenarios.units import clusters_with_shared_units
from gpucost_devstack.metrics_segment import link_blocks
from gpucost_devstack.prometheus import VICTORIA_METRICS_VARIABLE, running_prometheus
from gpucost_devstack.template import REPOSITORY
from tests.system import remote_write
from tests.system.remote_write import BLOCK_FLAGS

BASE = datetime(2026, 6, 2, 12, tzinfo=UTC)
"""The hour from which the minutes of the clusters count."""
SCENARIOS = {scenario.name: scenario for scenario in all_scenarios()}
"""The scenarios with true figures of every line."""
SHARED_UNITS = {shared.scenario.name: shared for shared in clusters_with_shared_units()}
UNSEEN = {
    "nothing-seen": with_scrape_gap(mixed_lifetimes("nothing-seen", hours=(0,)), "allocation", [(-10, 70)]),
    "hardly-seen": with_scrape_gap(mixed_lifetimes("hardly-seen", hours=(0,)), "allocation", [(3, 70)]),
}
"""Clusters whose hours are below their coverage threshold."""


def clusters() -> list[Scenario]:
    """All clusters. Names are unique."""
    return [*SCENARIOS.values(), *(shared.scenario for shared in SHARED_UNITS.values()), *UNSEEN.values()]


@contextmanager
def running_fleet() -> Iterator[str]:
    """Run a Prometheus with the samples of all clusters. Yields its URL."""
    with tempfile.TemporaryDirectory(prefix="gpucost-fleet-") as name:
        folder = Path(name)
        if os.environ.get(VICTORIA_METRICS_VARIABLE):  # it reads no blocks
            openmetrics.write(clusters(), BASE, folder / "metrics.om")
            with running_prometheus(folder / "metrics.om") as url:
                yield url
            return
        link_blocks(_blocks(), folder)
        with running_prometheus(None, *BLOCK_FLAGS, storage=folder) as url:
            yield url


def _blocks() -> Path:
    """The folder of the blocks. The process that needs it first makes it."""
    cache = REPOSITORY / ".cache" / "fleet"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / _digest()
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for other in cache.iterdir():
                if other.is_dir():
                    shutil.rmtree(other)
            _make_blocks(folder)
    return folder


def _make_blocks(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as partial:
        storage = Path(partial) / "data"
        flags = (*BLOCK_FLAGS, "--web.enable-remote-write-receiver", "--web.enable-admin-api")
        with running_prometheus(None, *flags, storage=storage) as url:
            series = ((cluster.name, each) for cluster in clusters() for each in openmetrics.series(cluster))
            remote_write.send_whole_series(url, series, int(BASE.timestamp()) * 1000)
            requests.post(f"{url}/api/v1/admin/tsdb/snapshot", timeout=120).raise_for_status()
        (snapshot,) = (storage / "snapshots").iterdir()
        snapshot.rename(folder)


def _digest() -> str:
    """A digest of all code on which the samples depend."""
    digest = hashlib.sha256()
    package = Path(openmetrics.__file__).parent
    for path in (*sorted(package.rglob("*.py")), Path(__file__), Path(remote_write.__file__)):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]
