"""Record what the real Prometheus shows of every scenario, so that thousands of mutants need not ask it again."""

import pickle
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from devstack.fleet import openmetrics
from devstack.fleet.scenarios import all_scenarios
from devstack.prometheus import running_prometheus
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from tests.system.fleet_truth import settings

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)


def main() -> None:
    """Write (scenario's name, number of the hour, settings, observation) of every hour into a file."""
    scenarios = all_scenarios()
    recorded = []
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.om"
        openmetrics.write(scenarios, BASE, metrics)
        with running_prometheus(metrics) as url:
            for one in scenarios:
                document = parse_settings(settings([one], url, BASE))
                reader = metrics_reader(document.clusters[0], document)
                hours = [BASE + timedelta(hours=number) for number in one.hours]
                for number, seen in zip(one.hours, reader.observe(hours), strict=True):
                    recorded.append((one.name, number, document, seen))
    Path(sys.argv[1]).write_bytes(pickle.dumps(recorded))


if __name__ == "__main__":
    main()
