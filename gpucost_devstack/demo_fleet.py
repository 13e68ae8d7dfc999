"""The demo's clusters during any period, and their settings."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpucost_devstack.fleet import demo
from gpucost_devstack.fleet.scenario import Interval, Minutes, Scenario

CLUSTERS: tuple[str, ...] = (demo.CLUSTER,)


def scenarios(start: datetime, end: datetime, *, scale: int = 1) -> list[Scenario]:
    """The clusters from `start` to `end`, both full hours. Minutes count from `start`."""
    last = (end - start) // timedelta(minutes=1)
    nodes, pods = [], []
    for number in range(scale):
        boundary = end
        while boundary > start:
            whole = demo.scenario(boundary)
            shift = (demo.start_for(boundary) - start) // timedelta(minutes=1)
            moved = {
                node.name: replace(
                    node,
                    name=node.name + f"-{number}" * (number > 0),
                    lifetime=_moved(node.lifetime, shift),
                    geometries=[
                        replace(layout, lifetime=_moved(layout.lifetime, shift)) for layout in node.geometries
                    ],
                )
                for node in whole.nodes
            }
            nodes += moved.values()
            pods += [
                replace(
                    pod,
                    name=pod.name + f"-{number}" * (number > 0),
                    node=pod.node and moved[pod.node.name],
                    use=[(since + shift, use) for since, use in pod.use],
                    bound_at=pod.bound_at + shift,
                    running_at=_later(pod.running_at, shift),
                    finished_at=_later(pod.finished_at, shift),
                    deleted_at=pod.deleted_at + shift,
                )
                for pod in whole.pods
            ]
            boundary -= timedelta(days=demo.DAYS)
    return [Scenario(demo.CLUSTER, nodes, pods, start=0, end=last, hours=range(last // 60))]


def _moved(interval: Interval, minutes: int) -> Interval:
    return interval[0] + minutes, interval[1] + minutes


def _later(minute: Minutes | None, minutes: int) -> Minutes | None:
    return None if minute is None else minute + minutes


MONTHLY_BUDGET_USD = 100_000
"""Budget of each business unit. It is far above their spend, so the page shows a budget and no alert fires."""
SLACK_SECRET = "gpucost/slack-webhook"


def settings_document(urls: Mapping[str, str]) -> dict[str, Any]:
    """The demo's settings. `urls` are the addresses of Prometheus by cluster."""
    return {
        "clusters": [
            {
                "name": cluster,
                "prometheus": {"url": url, "auth": "none"},
                "selector": {"cluster": cluster},
            }
            for cluster, url in urls.items()
        ],
        "pricing": {"source": "constant", "gpu_hourly_usd": int(demo.GPU_HOURLY_USD), "split": "gpu-bears-all"},
        "business_units": [
            {"name": "research", "namespaces": ["training", "notebooks"]},
            {"name": "assistant", "namespaces": ["chat"]},
        ],
        "alerts": {
            "rules": [
                {
                    "rule": "waste",
                    "waste_usd_per_hour": 3,
                    "waste_percent": 60,
                    "for_hours": 3,
                    "overrides": [{"business_unit": "assistant", "waste_usd_per_hour": 30}],
                },
                {"rule": "idle-workload", "gpus": 2, "utilization_percent": 10, "for_hours": 2},
                {"rule": "unallocated", "usd_per_hour": 20, "for_hours": 2, "keep_firing_hours": 2},
                {"rule": "budget", "monthly_usd": MONTHLY_BUDGET_USD},
            ],
            "receivers": [{"type": "slack", "secret": SLACK_SECRET}, {"type": "email"}],
        },
    }
