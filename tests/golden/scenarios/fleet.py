"""Every simulated cluster through `gpucost attribute`: metering, prices of the settings, split policies, units."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.scenarios import all_scenarios
from gpucost_devstack.fleet.scenarios.units import clusters_with_shared_units
from tests.golden.adapter import write_metrics as write

BASE = datetime(2026, 11, 19, 10, tzinfo=UTC)
NOW = BASE + timedelta(hours=5)
CONSTANT = {"source": "constant", "gpu_hourly_usd": 10}
RATES = [
    {"instance_type": "p5.48xlarge", "node_hourly_usd": 55.04},
    {"gpu_model": "NVIDIA A10G", "capacity_type": "spot", "gpu_hourly_usd": 0.4021},
    {"gpu_model": "NVIDIA A10G", "node_hourly_usd": 5.672},
    {"gpu_model": "NVIDIA A100*", "gpu_hourly_usd": 2.7447053, "until": "2026-11-19T11:00:00Z"},
    {"gpu_model": "NVIDIA A100*", "gpu_hourly_usd": 3, "from": "2026-11-19T11:00:00Z"},
]
PRICED = (
    "nodes-join-and-leave",
    "pod-lifetimes",
    "mig-mixed-changed",
    "worked-example",
    "pool-to-zero-and-back",
    "gpu-passed-on",
    "overcommitted-gpu",
    "claims",
    "gap-short",
    "owners",
)
SPLITS = ("gpu-bears-all", "scad", "opencost", "datadog", {"gpu": 9, "vcpu": 0.9, "gib": 0.1})
DARK = ("gaps-three-short", "gaps-at-both-edges", "ksm-three-times", "all-exporters-silent", "exporter-replaced")


def scenarios() -> list[Scenario]:
    """Every cluster."""
    return [*all_scenarios(), *(shared.scenario for shared in clusters_with_shared_units())]


def write_metrics(folder: Path) -> None:
    """What Prometheus scraped of all of them."""
    write({BASE: scenarios()}, folder)


def inputs() -> dict[str, Any]:
    """One command line for clusters of the same settings and hours, and several documents for some of them."""
    return {"steps": [{"at": NOW.isoformat(), "do": "command", **step} for step in _steps()]}


def _steps() -> Iterator[dict[str, Any]]:
    fleets = {scenario.name: scenario for scenario in scenarios()}
    groups: dict[tuple[str, tuple[int, ...]], list[Scenario]] = {}
    for scenario in fleets.values():
        groups.setdefault((scenario.settings, tuple(scenario.hours)), []).append(scenario)
    for number, ((_, hours), members) in enumerate(groups.items()):
        for at in range(0, len(members), 40):
            name = f"clusters {number}.{at // 40}: {members[at].name} …"
            yield _attribute(name, members[at : at + 40], hours)
    priced = [fleets[name] for name in PRICED if name in fleets]
    for split in SPLITS:
        label = split if isinstance(split, str) else "own weights"
        pricing = {"sources": ["rates", "constant"], "rates": RATES, "gpu_hourly_usd": 7.3, "split": split}
        yield _attribute(f"rates, split {label}", priced, (0, 1), pricing=pricing)
    yield _attribute(
        "rates alone: some nodes have no price", priced, (0,), pricing={"source": "rates", "rates": RATES[:2]}
    )
    yield _attribute(
        "euros", priced[:2], (0,), pricing={"source": "constant", "gpu_hourly_usd": 9.99, "currency": "EUR"}
    )
    dark = [fleets[name] for name in DARK if name in fleets]
    for allocation, utilization in ((1, 0), (0.9, 0.5)):
        coverage = {"allocation": allocation, "utilization": utilization}
        yield _attribute(f"coverage at least {allocation} and {utilization}", dark, (0, 1), coverage=coverage)
    everything = {"signal": "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "sources": ["pod", "shared", "node", "cluster"]}
    unmapped = [fleet for fleet in fleets.values() if fleet.dcgm is not None and not fleet.dcgm.maps_pods]
    yield _attribute("all utilization sources", unmapped, (0,), utilization=everything)
    yield _attribute("own source only", [fleets["pod-lifetimes"]], (0,), utilization={**everything, "sources": ["pod"]})
    yield _attribute("percentages", [fleets["pod-lifetimes"]], (0,), utilization={"scale": 100})
    bare = [fleet for fleet in fleets.values() if any(not ksm.node_labels for ksm in fleet.ksm)]
    yield _attribute("slices per GPU", bare, (0,), cluster={"slices_per_gpu": 7})
    yield _attribute(
        "labels and units",
        [fleets["owners"], fleets["business-units"]],
        (0,),
        cost_labels=["team"],
        business_units=[
            {"name": "vision", "pod_labels": {"team": "vision"}},
            {"name": "shared", "namespaces": ["team"], "distribute": "even"},
        ],
    )
    for form in ("csv", "table"):
        yield _attribute(f"as {form}", [fleets["worked-example"]], (0,), form=form)
    for name in ("worked-example", "owners", "mig-mixed-changed", "signal-device-only", "claims", "no-gpu-nodes"):
        yield {
            "name": f"doctor: {name}",
            "at": (BASE + timedelta(minutes=59, seconds=30)).isoformat(),
            "format": "json",
            "arguments": ["doctor", "--settings", "{file:settings.json}", "--format", "json"],
            "files": {"settings.json": _document([fleets[name]])},
        }


def _attribute(
    name: str, fleets: Sequence[Scenario], hours: Sequence[int], *, form: str = "json", **sections: Any
) -> dict[str, Any]:
    first = (BASE + timedelta(hours=min(hours))).strftime("%Y-%m-%dT%H:00:00Z")
    return {
        "name": name,
        "arguments": [
            "attribute",
            "--settings",
            "{file:settings.json}",
            "--hour",
            first,
            "--hours",
            str(len(hours)),
            "--format",
            form,
        ],
        "files": {"settings.json": _document(fleets, **sections)},
        "format": "text" if form == "table" else form,
    }


def _document(fleets: Sequence[Scenario], *, cluster: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    sections_of_scenario = yaml.safe_load(fleets[0].settings.replace("{base}", f"{BASE:%Y-%m-%dT%H:00:00Z}")) or {}
    clusters = [
        {
            "name": fleet.name,
            "prometheus": {"url": f"{{outside}}/prometheus/{fleet.name}"},
            "selector": {"cluster": fleet.name},
            **(cluster or {}),
        }
        for fleet in fleets
    ]
    document = {"clusters": clusters, "pricing": CONSTANT, **sections_of_scenario, **sections}
    for unit in document.get("business_units", ()):  # YAML reads times, JSON has none
        if isinstance(unit.get("from"), datetime):
            unit["from"] = unit["from"].strftime("%Y-%m-%dT%H:00:00Z")
    return document
