"""The documentation's examples match the product."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpucost.core.amounts import Costs, to_fixed_point
from gpucost.core.costs_by_model import ModelSum, TokenWeights
from gpucost.core.hour_record import ModelHour, ModelKey
from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.scenarios.units_owners_and_claims import worked_example
from gpucost_devstack.prometheus import running_prometheus
from gpucost_devstack.template import REPOSITORY
from tests.system.fleet_truth import attribute
from tests.system.timeline import Timeline

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)


def table(text: str) -> dict[str, list[str]]:
    """The cells of the worked example's table, by row."""
    rows = re.findall(
        r"^\| ([a-z ]+) \| (.*) \|$", text.split("## A worked example")[1].split("## ", maxsplit=1)[0], re.MULTILINE
    )
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def samples_in(text: str) -> list[tuple[str, dict[str, str], str]]:
    """The samples of an exposition: metric, labels and value."""
    lines = (re.fullmatch(r"(.+)\{(.+)\} (\d+)", line) for line in text.strip().splitlines())
    return [
        (match[1], dict(re.findall(r'(\w+)="([^"]*)"', match[2])), match[3]) for match in lines if match is not None
    ]


def test_worked_example_of_inference_matches_attribution(tmp_path: Path) -> None:
    """The counters of the page, through Prometheus, have the costs and unit costs of its table."""
    page = (REPOSITORY / "docs" / "explanation" / "inference.md").read_text()
    before, after = (samples_in(block) for block in re.findall(r"```text\n(vllm:.*?)```", page, re.DOTALL))
    timeline = Timeline(base=BASE)
    timeline.node(capacity={"nvidia_com_gpu": 1})
    timeline.pod("chat-0")
    timeline.up()
    timeline.device("0.8", exported_pod="chat-0", exported_namespace="team")
    target = {"job": "servers", "instance": "10.1.0.1:8000", "namespace": "team", "pod": "chat-0"}
    for start, end, samples in ((-65, 0, before), (0, 125, after)):
        for metric, labels, count in samples:
            timeline.add(metric, start, end, count, **labels, **target)
    metrics, settings = tmp_path / "metrics.om", tmp_path / "settings.yaml"
    metrics.write_text(timeline.text())
    with running_prometheus(metrics) as url:
        settings.write_text(
            f'clusters: [{{name: example, prometheus: {{url: "{url}"}}}}]\n'
            "pricing: {source: constant, gpu_hourly_usd: 4}\ninference: {enabled: true}\n"
        )
        (hour,) = attribute(settings, BASE, 1)
    actual = {}
    for row in hour["models"]:
        figures = ModelSum.of([model_hour(row)]).figures(TokenWeights())
        costs = [f"${figures[name]:.2f}" for name in ("allocated_usd", "effective_usd", "waste_usd")]
        unit_costs = [
            f"${figures[f'usd_per_{unit}']:.4f}"
            for unit in (
                "million_tokens",
                "million_prompt_tokens",
                "million_generated_tokens",
                "million_generated_tokens_at_full_use",
                "request",
            )
        ]
        actual[row["model"]] = [*costs, *unit_costs]
    rows = re.findall(r"^\| (chat\S*) \| (.*) \|$", page, re.MULTILINE)
    assert actual == {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def model_hour(row: dict[str, Any]) -> ModelHour:
    """A row of the command's answer."""
    key = ModelKey(**{name: row[name] for name in ModelKey._fields})
    costs = Costs(**{name: to_fixed_point(row[name] or Decimal(0)) for name in Costs.names()})
    return ModelHour(key, costs, *(int(row[name]) for name in ModelHour._fields[2:]))


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
