"""The demo's settings document: clusters, prices, business units, budgets and alert rules."""

from collections.abc import Mapping
from typing import Any

from gpucost_devstack.fleet.demo.fleet import CLUSTERS
from gpucost_devstack.fleet.demo.units import business_units
from gpucost_devstack.fleet.demo.workloads import CONSUMER_LABEL

SLACK_SECRET = "gpucost/slack-webhook"
"""The secret with the URL of the Slack channel that the demo's alerts are sent to."""


def settings_document(urls: Mapping[str, str], *, scale: int = 1) -> dict[str, Any]:
    """The demo's settings document.

    Args:
        urls: the URL of each cluster's Prometheus. Clusters may share a server.
        scale: the scale of the fleet.
    """
    units = business_units(scale)
    return {
        "clusters": [
            {"name": name, "prometheus": {"url": urls[name], "auth": "none"}, "selector": {"cluster": name}}
            for name in CLUSTERS
        ],
        "pricing": {
            "source": "auto",
            "rates": [
                {"instance_type": "p4d.24xlarge", "capacity_type": "reserved", "percent_of_on_demand": 62},
                {"instance_type": "p5.48xlarge", "capacity_type": "reserved", "percent_of_on_demand": 65},
            ],
            "split": "datadog",
        },
        "business_units": [
            {"name": unit.name, "namespaces": [*unit.namespaces]}
            | ({"consumers": [*unit.consumers]} if unit.consumers else {})
            for unit in units
        ],
        "inference": {"enabled": True, "consumer_label": CONSUMER_LABEL},
        "cost_labels": ["app", "team", "gpucost/interruptible"],
        "alerts": {
            "rules": [
                {
                    "rule": "waste",
                    "waste_usd_per_hour": 3,
                    "waste_percent": 60,
                    "for_hours": 3,
                    "keep_firing_hours": 12,
                    "overrides": [{"business_unit": "assistant*", "waste_usd_per_hour": 60}],
                },
                {
                    "rule": "idle-workload",
                    "gpus": 1,
                    "utilization_percent": 2,
                    "for_hours": 24,
                    "keep_firing_hours": 12,
                    "overrides": [{"namespace": "dev*", "gpus": 4}],
                },
                {"rule": "unallocated", "usd_per_hour": 40, "for_hours": 4, "keep_firing_hours": 12},
                {
                    "rule": "budget",
                    "monthly_usd": 5_000,
                    "percents": [80, 100],
                    "overrides": [{"business_unit": unit.name, "monthly_usd": unit.monthly_usd} for unit in units],
                },
                {"rule": "token-cost", "usd_per_million_tokens": 6, "tokens": "generated", "models": ["meta-llama/*"]},
            ],
            "receivers": [{"type": "slack", "secret": SLACK_SECRET}, {"type": "email"}],
            "repeat_hours": 0,
        },
    }
