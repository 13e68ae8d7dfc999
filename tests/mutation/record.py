"""Record the observations of every scenario from a real Prometheus, so that mutants do not query it again."""

import pickle
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.scenarios import all_scenarios
from gpucost_devstack.prometheus import running_prometheus
from tests.system.fleet_truth import settings

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)


def main() -> None:
    """Write (scenario's name, number of the hour, settings, observation) of every hour to a file."""
    scenarios = all_scenarios()
    recorded = []
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.om"
        openmetrics.write(scenarios, BASE, metrics)
        with running_prometheus(metrics) as url:
            for scenario in scenarios:
                document = parse_settings(settings([scenario], url, BASE))
                reader = metrics_reader(document.clusters[0], document)
                hours = [BASE + timedelta(hours=number) for number in scenario.hours]
                for number, observation in zip(scenario.hours, reader.observe(hours), strict=True):
                    recorded.append((scenario.name, number, document, observation))
    Path(sys.argv[1]).write_bytes(pickle.dumps(recorded))


if __name__ == "__main__":
    main()
