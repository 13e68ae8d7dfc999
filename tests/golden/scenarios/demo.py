"""The demo's three days through the deployed system: backfill, ticks, alerts, every route, grants, exports."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.golden.adapter import write_metrics as write
from tests.golden.scenarios import demo_cluster as fleet
from tests.golden.scenarios.building import CALLERS, GRANTS, HOUR, REFUSED, Script, everybody, requests, text

END = datetime(2026, 11, 20, 6, tzinfo=UTC)
START = END - timedelta(days=3)
SCHEDULED = 18
"""Hours that are attributed tick by tick; those before are a backfill."""


def write_metrics(folder: Path) -> None:
    """What Prometheus scraped."""
    write({fleet.start_for(END): [fleet.scenario(END)]}, folder)


def document(**sections: Any) -> dict[str, Any]:
    """The settings."""
    return {
        "clusters": [
            {"name": "demo", "prometheus": {"url": "{outside}/prometheus/demo"}, "selector": {"cluster": "demo"}}
        ],
        "pricing": {"source": "constant", "gpu_hourly_usd": 12, "split": "gpu-bears-all"},
        "business_units": [
            {"name": "research", "namespaces": ["training", "notebooks"]},
            {"name": "assistant", "namespaces": ["chat"]},
        ],
        "cost_labels": ["team"],
        "alerts": {
            "rules": [
                {
                    "rule": "waste",
                    "waste_usd_per_hour": 3,
                    "waste_percent": 60,
                    "for_hours": 3,
                    "overrides": [{"business_unit": "assistant", "waste_usd_per_hour": 30}],
                },
                {
                    "rule": "waste",
                    "name": "waste-everywhere",
                    "waste_usd_per_hour": 20,
                    "waste_percent": 40,
                    "across_clusters": True,
                    "keep_firing_hours": 3,
                },
                {"rule": "idle-workload", "gpus": 2, "utilization_percent": 10, "for_hours": 2},
                {"rule": "unallocated", "usd_per_hour": 20, "for_hours": 2, "keep_firing_hours": 2},
                {
                    "rule": "budget",
                    "monthly_usd": 2500,
                    "percents": [20, 50, 100],
                    "overrides": [{"business_unit": "bu-*", "monthly_usd": 400}],
                },
                {"rule": "data", "overdue_hours": 2, "coverage": 0.8},
            ],
            "receivers": [
                {"type": "slack", "secret": "gpucost/slack"},
                {"type": "email"},
                {"type": "alertmanager", "name": "sre", "url": "{outside}/alertmanager/sre"},
            ],
            "repeat_hours": 6,
        },
        **sections,
    }


def inputs() -> dict[str, Any]:
    """All steps."""
    alerts = document()["alerts"]
    first, named = alerts["rules"][0], {"name": "team-waste"}
    alerts["rules"][0] = {**first, **named}
    script = Script(END - SCHEDULED * HOUR + timedelta(minutes=10))
    script.invoke("dispatch", scheduled_time=text(script.now))
    script.settings(document(alerts=alerts))
    script.command("backfill", "--from", text(START), "--to", text(END - SCHEDULED * HOUR), "--no-wait")
    script.deliver()
    for number in range(1, SCHEDULED + 1):
        script.tick(END - (SCHEDULED - number) * HOUR)
        if number == 9:
            script.add("metrics are down", "down", clusters=["demo"])
        if number == 10:
            script.add("metrics are back", "down", clusters=[])
        if number == 12:
            script.command("alerts", "silence", "add", "rule=idle-workload", "--hours", "2", "--comment", "load test")
    script.now = END + timedelta(minutes=20)
    for path, query, pages in requests(START, END, ("research", "assistant", "bu-a")):
        script.ask(path, query, pages=pages)
    for path, refused in REFUSED:
        script.ask(path, refused, fails=True)
    script.invoke("export", scheduled_time=text(script.now), first_day="2026-11-17T00:00:00Z", days=4)
    script.add("exported files of a day", "export", prefix="focus/billing_period=2026-11/cluster=demo/date=2026-11-19/")
    script.add("exported table of a day", "export", prefix="csv/billing_period=2026-11/cluster=demo/date=2026-11-17/")
    script.ask("/v1/exports", {"start": "2026-11-01", "end": "2026-12-01"})
    script.settings(document(alerts=alerts, access=GRANTS))
    script.now += timedelta(minutes=2)
    everybody(script, START, END)
    for more in (
        ("--start", text(END - 6 * HOUR), "--end", text(END)),
        ("--days", "3", "--group-by", "business_unit,workload", "--granularity", "day", "--idle", "shared-evenly"),
        ("--window", "24h", "--group-by", "node_pool", "--filter", "capacity_type=spot", "--sort=-allocated_usd"),
    ):
        script.command("report", "--api", "{outside}/api", *more, form="json")
    script.command("report", "--api", "{outside}/api", "--days", "3", form="csv")
    script.command("report", "--api", "{outside}/api", "--days", "3")
    script.command("settings", "show")
    script.command("settings", "history")
    script.command("alerts", "list")
    script.command("alerts", "replay", "--from", text(START), "--to", text(END))
    return {
        "parameters": {"PublicUrl": "https://costs.example.com"},
        "secrets": {"gpucost/slack": "{outside}/slack/costs"},
        "callers": CALLERS,
        "steps": script.steps,
    }
