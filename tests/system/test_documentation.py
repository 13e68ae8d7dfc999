"""The documentation's examples match the product."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.scenarios.units_owners_and_claims import worked_example
from gpucost_devstack.prometheus import running_prometheus
from gpucost_devstack.template import REPOSITORY
from tests.system.fleet_truth import attribute

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)


def table(text: str) -> dict[str, list[str]]:
    """The cells of the worked example's table, by row."""
    rows = re.findall(
        r"^\| ([a-z ]+) \| (.*) \|$", text.split("## A worked example")[1].split("## ", maxsplit=1)[0], re.MULTILINE
    )
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def test_worked_example_matches_attribution(tmp_path: Path) -> None:
    metrics, settings = tmp_path / "metrics.om", tmp_path / "settings.yaml"
    openmetrics.write([worked_example()], BASE, metrics)
    with running_prometheus(metrics) as url:
        price = "pricing: {source: constant, gpu_hourly_usd: 3}"
        settings.write_text(f'clusters: [{{name: example, prometheus: {{url: "{url}"}}}}]\n{price}\n')
        (hour,) = attribute(settings, BASE, 1)
    documented = table((REPOSITORY / "docs" / "explanation" / "cost-model.md").read_text())
    actual = {
        line["pod"]: [
            f"{line['allocated_gpu_hours']:.4f}",
            *(f"${line[f'{part}_usd']:.2f}" for part in ("allocated", "effective", "waste", "unmeasured")),
        ]
        for line in hour["lines"]
    }
    totals = hour["totals"]
    actual["unallocated"] = [f"{totals['unallocated_gpu_hours']:.4f}", f"${totals['unallocated_usd']:.2f}", "", "", ""]
    actual["the node"] = [f"{totals['capacity_gpu_hours']:.4f}", f"${totals['node_cost_usd']:.2f}", "", "", ""]
    assert actual == documented
