"""Settings of one cluster with a constant price, business units and every kind of alert rule."""

import json

CLUSTER = "demo"


def settings_text(prometheus_url: str) -> str:
    """Return the settings document. `prometheus_url` is the address of its Prometheus."""
    return json.dumps(
        {
            "clusters": [
                {
                    "name": CLUSTER,
                    "prometheus": {"url": prometheus_url, "auth": "none"},
                    "selector": {"cluster": CLUSTER},
                }
            ],
            "pricing": {"source": "constant", "gpu_hourly_usd": 12, "split": "gpu-bears-all"},
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
                    {"rule": "budget", "monthly_usd": 100_000},
                ],
                "receivers": [{"type": "slack", "secret": "gpucost/slack-webhook"}, {"type": "email"}],
            },
        },
        indent=2,
    )
