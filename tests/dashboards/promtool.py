"""Runs Prometheus' rule engine on written series, by `promtool test rules`."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpucost_devstack.installation import find_program

Labels = Mapping[str, str]
DIGITS = 8


def series(metric: str, labels: Labels, values: str) -> dict[str, str]:
    """Return a series in promtool's notation."""
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return {"series": f"{metric}{{{inside}}}", "values": values}


def expectation(query: str, minute: int, *samples: tuple[Labels, float]) -> dict[str, Any]:
    """Expect the samples of a query at a minute, rounded to DIGITS digits; none if no sample is passed."""
    expected = [
        {
            "labels": "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}",
            "value": round(value, DIGITS),
        }
        for labels, value in samples
    ]
    return {"expr": f"round({query}, {10**-DIGITS:.{DIGITS}f})", "eval_time": f"{minute}m", "exp_samples": expected}


def run(
    folder: Path,
    groups: Sequence[Mapping[str, Any]],
    input_series: Sequence[Mapping[str, str]],
    expectations: Sequence[Mapping[str, Any]] = (),
    alerts: Sequence[Mapping[str, Any]] = (),
    interval: str = "1m",
) -> str:
    """Evaluate rules every minute, and return promtool's report, or "" if all expectations hold.

    Args:
        folder: folder for temporary files.
        groups: rules, evaluated in their order.
        input_series: see `series`.
        expectations: see `expectation`.
        alerts: expected alerts, in promtool's form.
        interval: between two values of a series.
    """
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": list(groups)}))
    tests = [
        {
            "interval": interval,
            "input_series": list(input_series),
            "promql_expr_test": list(expectations),
            "alert_rule_test": list(alerts),
        }
    ]
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": tests,
        "group_eval_order": [group["name"] for group in groups],
    }
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [find_program("promtool"), "test", "rules", folder / "tests.yaml"], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def check(folder: Path, text: str) -> str:
    """Return the errors of `promtool check rules` for a rule file, or "" if it is valid."""
    path = folder / "checked.yaml"
    path.write_text(text)
    done = subprocess.run(
        [find_program("promtool"), "check", "rules", "--lint-fatal", path], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr
