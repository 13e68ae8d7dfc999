"""Searches more randomly generated clusters for wrong figures than the tests have time for.

`python -m tests.system.fleet_search 100 200` checks the seeds from 100 to 199, prints every hour whose figures are
wrong, and exits with 1 if there is one. Further arguments select kinds of clusters: `processes claims`.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.scenarios.gpu_fractions import random_cluster_with_reservations, random_cluster_with_vgpus
from gpucost_devstack.fleet.scenarios.mixes import random_cluster, random_cluster_of_vendors, random_cluster_with_claims
from gpucost_devstack.fleet.scenarios.partitions import random_cluster_with_partitions
from gpucost_devstack.fleet.scenarios.processes import random_cluster_with_processes
from gpucost_devstack.fleet.scenarios.racks import random_racks
from gpucost_devstack.prometheus import running_prometheus
from tests.system.fleet_truth import ask, assert_energy, assert_identity, assert_lines

AT_ONCE = 20
"""Seeds whose clusters are in one Prometheus."""
KINDS: Mapping[str, Callable[[int], Scenario]] = {
    "mix": random_cluster,
    "processes": random_cluster_with_processes,
    "claims": random_cluster_with_claims,
    "partitions": random_cluster_with_partitions,
    "racks": random_racks,
    "vendors": random_cluster_of_vendors,
    "vgpus": random_cluster_with_vgpus,
    "reservations": random_cluster_with_reservations,
}


def main(first: int, after: int, kinds: Sequence[str]) -> int:
    """The number of wrong hours for the seeds from `first` to before `after`."""
    base = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
    wrong = count()
    for seed in range(first, after, AT_ONCE):
        seeds = range(seed, min(after, seed + AT_ONCE))
        scenarios = [KINDS[kind](number) for kind in kinds for number in seeds]
        with tempfile.TemporaryDirectory(prefix="gpucost-fleet-") as name:
            folder = Path(name)
            openmetrics.write(scenarios, base, folder / "metrics.om")
            with running_prometheus(folder / "metrics.om") as url:
                hours = ask(scenarios, url, base, folder)
        for scenario in scenarios:
            for number in scenario.hours:
                for check in (assert_lines, assert_identity, assert_energy):
                    try:
                        check(scenario, number, hours[scenario.name, number])
                    except AssertionError as error:
                        next(wrong)
                        print(
                            f"{scenario.name} hour {number}: {(str(error) or 'is wrong').splitlines()[0]}", flush=True
                        )
    return next(wrong)


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or [*KINDS]) else 0)
