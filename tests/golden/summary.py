"""Counts what the recorded answers cover: values of significant fields, and amounts that are not zero."""

from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from tests.golden import fixtures

SIGNIFICANT = (
    "status",
    "utilization_source",
    "price_source",
    "split_policy",
    "gpu_share_source",
    "capacity_type",
    "kind",
    "state",
    "rule",
    "event",
    "severity",
    "workload_kind",
    "resource",
    "source",
    "unit",
    "currency",
    "finding",
    "to",
)


def summary(name: str) -> dict[str, Counter[str]]:
    """Counts by field."""
    inputs = fixtures.read(f"{name}.inputs", exact=False)
    answers = fixtures.read(f"{name}.answers")
    counted: dict[str, Counter[str]] = {"steps": Counter(), "routes": Counter(), "not zero": Counter()}
    for step in inputs["steps"]:
        counted["steps"][step["do"]] += 1
        if step["do"] in {"request", "pages"}:
            answer = answers[step["name"]]
            first = answer[0] if isinstance(answer, list) else answer
            counted["routes"][f"{first.get('status', 'raised')} {_route(step['path'])}"] += 1
        if step["do"] == "command":
            counted.setdefault("commands", Counter())[" ".join(step["arguments"][:2])] += 1
    for answer in answers.values():
        for field, value in _values(answer):
            if field in SIGNIFICANT and isinstance(value, str):
                counted.setdefault(field, Counter())[value] += 1
            elif isinstance(value, Decimal) and value and field.endswith(("_usd", "_gpu_hours")):
                counted["not zero"][field] += 1
            elif field == "metric":
                counted.setdefault("metrics", Counter())[str(value)] += 1
    return counted


def text(name: str) -> str:
    """The counts as text."""
    lines = [f"{name}:"]
    for field, counts in summary(name).items():
        lines.append(f"  {field}: " + ", ".join(f"{value} {count}" for value, count in sorted(counts.items())))
    return "\n".join(lines)


def _route(path: str) -> str:
    parts = path.split("/")
    return "/".join([*parts[:3], "{name}", *parts[4:]]) if path.startswith("/v1/business-units/") else path


def _values(document: Any, field: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(document, Mapping):
        for name, part in document.items():
            if name == "metrics" and isinstance(part, list):
                for metrics in part:
                    yield from (("metric", metric) for metric in metrics if metric != "of")
            yield from _values(part, name)
    elif isinstance(document, list):
        for part in document:
            yield from _values(part, field)
    else:
        yield field, document
