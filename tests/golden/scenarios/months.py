"""Five weeks of one cluster: recommendations and what becomes of them, forecasts, spend, digests, months; odd clusters.

Scraped every ten minutes, which is what five weeks allow; every kind of recommendation has a workload that calls for it.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpucost_devstack.fleet.builders import gpu_node, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import GPU, Exporter, KubeStateMetrics, Node, Pod, Scenario, Use
from gpucost_devstack.fleet.scenarios import all_scenarios
from gpucost_devstack.fleet.scraping import Scraping
from tests.golden.adapter import write_metrics as write
from tests.golden.scenarios.building import CALLERS, GRANTS, HOUR, Script, opencost, requests, text

MONDAY = datetime(2026, 10, 5, tzinfo=UTC)
DAY = timedelta(days=1)
DAYS = 29
LENGTH = 1440 * DAYS + 720
REVIEWED = 21
"""Days that are a backfill, and after which recommendations are first made."""
CHANGED = 1440 * REVIEWED + 720
"""The minute at which some of them are followed."""
ODD = MONDAY + 28 * DAY + 10 * HOUR
"""Hours of clusters whose metrics have gaps, contradict each other, or lack utilization by pod."""
ODD_CLUSTERS = ("overcommitted-gpu", "gaps-at-both-edges", "exporter-replaced", "not-mapped", "nodes-join-and-leave")


def _labels(pool: str, capacity: str = "on-demand") -> dict[str, str]:
    return {
        "topology_kubernetes_io_zone": "eu-central-1a",
        "topology_k8s_aws_zone_id": "euc1-az2",
        "karpenter_sh_nodepool": pool,
        "karpenter_sh_capacity_type": capacity,
    }


def _use(level: str) -> Use:
    return ((-1e6, level),)


def _by_hour(busy: str, calm: str, hours: range, *, weekdays: int = 7) -> Use:
    """Busy in some hours of the day, on the first days of the week."""
    curve = []
    for hour in range(-24, 24 * (DAYS + 2)):
        is_busy = hour % 24 in hours and hour // 24 % 7 < weekdays
        curve.append((60 * hour, busy if is_busy else calm))
    return curve


class _Fleet:
    """Pods, each with the node that carries it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.pods: list[Pod] = []

    def alone(
        self,
        workload: str,
        kind: str,
        namespace: str,
        use: Use,
        *,
        count: int = 1,
        pool: str = "solo",
        model: str = "a10g-one",
        gone: dict[int, float] | None = None,
        capacity: str = "on-demand",
        **more: Any,
    ) -> None:
        """Pods with a node of one GPU each."""
        for number in range(count):
            end = (gone or {}).get(number, 1e6)
            life = (-1e6, end)
            on = gpu_node(
                f"{pool}-{workload}-{number}",
                model,
                whole_gpus_geometry(model, life),
                labels=_labels(pool, capacity),
                lifetime=life,
                provider_id=f"aws:///eu-central-1a/i-{workload}{number}",
            )
            self.nodes.append(on)
            self.on(on, [0], f"{workload}-{number}", kind, workload, namespace, use, deleted_at=end, **more)

    def on(
        self,
        where: Node,
        devices: list[int],
        name: str,
        kind: str,
        workload: str,
        namespace: str,
        use: Use,
        **more: Any,
    ) -> None:
        """A pod on a node."""
        owners = [(kind, workload)] if kind != "Deployment" else [("ReplicaSet", f"{workload}-6f7d"), (kind, workload)]
        requests = {"main": {GPU: len(devices)}}
        self.pods.append(Pod(name, where, devices, use, namespace=namespace, owners=owners, requests=requests, **more))


def production() -> Scenario:
    """The cluster."""
    fleet = _Fleet()
    fleet.alone(
        "chat",
        "Deployment",
        "research-chat",
        _by_hour("0.15", "0.05", range(8, 20)),
        count=6,
        gone=dict.fromkeys(range(2, 6), CHANGED),
    )
    fleet.alone("notebook", "StatefulSet", "research-lab", _use("0.003"), gone={0: CHANGED})
    fleet.alone("demo", "StatefulSet", "vision-lab", _use("0"))
    fleet.alone("serve", "Deployment", "vision-serve", _use("0.97"), count=2)
    fleet.alone("web", "Deployment", "research-web", _by_hour("0.55", "0.45", range(6, 22)), count=3)
    fleet.alone("office", "StatefulSet", "research-office", _by_hour("0.62", "0.001", range(8, 18), weekdays=5))
    fleet.alone("by-day", "StatefulSet", "vision-share", _by_hour("0.6", "0.05", range(8, 20)), pool="share")
    fleet.alone("by-night", "StatefulSet", "vision-share", _by_hour("0.05", "0.6", range(8, 20)), pool="share")
    fleet.alone("mini", "Job", "speech", _use("0.15"), count=3, pool="h100", model="h100-one")
    fleet.alone(
        "crawl",
        "Job",
        "speech",
        _use("0.8"),
        pool="spot",
        capacity="spot",
        labels={"label_gpucost_interruptible": "true", "label_team": "speech"},
    )
    late = 1440 * 28
    for number in range(2):
        large = gpu_node(
            f"large-{number}",
            "a10g",
            whole_gpus_geometry("a10g"),
            labels=_labels("large"),
            provider_id=f"aws:///eu-central-1a/i-large{number}",
        )
        fleet.nodes.append(large)
        for gpu in range(2):
            name = f"embed-{2 * number + gpu}"
            fleet.on(large, [gpu], name, "StatefulSet", "embed", "vision-embed", _use("0.5"))
        fleet.on(
            large, [2, 3], f"train-{number}", "Job", "train", "research-train", _use("0.9"), bound_at=late + 60 * number
        )
    for day in (3, 9, 16):
        begin = 1440 * day + 60 * 9
        fleet.pods.append(
            Pod(
                f"late-{day}",
                None,
                namespace="speech",
                bound_at=begin,
                deleted_at=begin + 130,
                owners=[("Job", f"late-{day}")],
            )
        )
    every = {"interval_seconds": 600, "offset_seconds": 540}
    exporter = Exporter(
        Scraping("dcgm-exporter", "", **every),  # type: ignore[arg-type]
        signals={"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1, "DCGM_FI_DEV_FB_USED": 15000},
    )
    ksm = KubeStateMetrics(Scraping("kube-state-metrics", "10.0.0.10:8080", **every))  # type: ignore[arg-type]
    return Scenario("prod", fleet.nodes, fleet.pods, ksm=[ksm], dcgm=exporter, start=-120, end=LENGTH + 60)


def odd() -> Iterator[Scenario]:
    """Clusters in which something is wrong."""
    for scenario in all_scenarios():
        if scenario.name in ODD_CLUSTERS:
            yield replace(scenario, settings="")


def write_metrics(folder: Path) -> None:
    """What Prometheus scraped."""
    write({MONDAY: [production()], ODD: list(odd())}, folder, days=4)


def tables() -> dict[str, Any]:
    """What AWS says of prices."""
    offers = [
        {"instance_type": name, "region": "eu-central-1", "amount": amount, "since": "2026-09-01T00:00:00Z"}
        for name, amount in (
            ("g5.12xlarge", "7.0910000000"),
            ("p5.4xlarge", "8.6007"),
            ("g5.xlarge", "1.2580"),
            ("p5.48xlarge", "69.31"),
        )
    ]
    spot = [
        ["g5.xlarge", "eu-central-1a", "Linux/UNIX", text(MONDAY + day * DAY - 20 * DAY), f"0.{4000 + 37 * day % 900}"]
        for day in range(0, 48, 2)
    ]
    shapes = {"g5.xlarge": {"gpus": 1, "vcpus": 4, "mib": 16384}}
    return {"zones": {"eu-central-1a": "euc1-az2"}, "spot": spot, "offers": offers, "shapes": shapes}


ALERTS: dict[str, Any] = {
    "time_zone": "Europe/Berlin",
    "rules": [
        {"rule": "waste", "name": "waste", "waste_usd_per_hour": 1, "waste_percent": 50, "for_hours": 2},
        {
            "rule": "waste",
            "name": "waste-by-night",
            "waste_usd_per_hour": 2,
            "waste_percent": 20,
            "quiet_hours": {"from": "20:00", "to": "07:00", "weekends": True},
        },
        {"rule": "idle-workload", "utilization_percent": 2, "for_hours": 3, "scope": {"namespaces": ["vision-*"]}},
        {"rule": "unallocated", "usd_per_hour": 2, "for_hours": 2},
        {
            "rule": "budget",
            "monthly_usd": 9000,
            "percents": [10, 50, 90],
            "overrides": [{"business_unit": "speech", "monthly_usd": 12000, "quarterly_usd": 40000}],
        },
        {"rule": "spend-change", "percent": 3, "usd": 2, "weeks": 2},
        {"rule": "data", "overdue_hours": 1, "coverage": 0.9, "price_age_hours": 30},
        {"rule": "digest", "name": "weekly", "every": "week", "at": "08:00"},
        {"rule": "digest", "name": "monthly", "every": "month", "at": "07:30", "time_zone": "UTC"},
        {"rule": "external", "scope": {"clusters": ["prod"]}},
    ],
    "receivers": [
        {"type": "slack", "name": "costs", "secret": "gpucost/slack"},
        {"type": "email"},
        {"type": "alertmanager", "name": "sre", "url": "{outside}/alertmanager/sre", "secret": "gpucost/token"},
    ],
    "repeat_hours": 24,
}
RATES = [
    {"instance_type": "g5.xlarge", "capacity_type": "reserved", "node_hourly_usd": 0.79},
    {"instance_type": "g5.*", "capacity_type": "reserved", "percent_of_on_demand": 60},
]


def document(*more_clusters: str, **more: Any) -> dict[str, Any]:
    """The settings."""
    return {
        "clusters": [
            {"name": name, "prometheus": {"url": f"{{outside}}/prometheus/{name}"}, "selector": {"cluster": name}}
            for name in ("prod", *more_clusters)
        ],
        "pricing": {
            "sources": ["spot", "on-demand", "rates"],
            "rates": [*RATES, *({"cluster": name, "gpu_hourly_usd": 10} for name in more_clusters)],
        },
        "business_units": [
            {"name": "research", "namespaces": ["research-*"]},
            {"name": "vision", "namespaces": ["vision-*"]},
        ],
        "cost_labels": ["team", "gpucost/interruptible"],
        "lookback_hours": 26,
        "alerts": ALERTS,
        **more,
    }


def _recommendations(script: Script) -> None:
    script.ask("/v1/recommendations", {"state": "all"})
    script.ask("/v1/forecasts", {"business_unit": "research"})


def inputs() -> dict[str, Any]:
    """All steps."""
    reviewed, end = MONDAY + REVIEWED * DAY, MONDAY + DAYS * DAY
    script = Script(MONDAY + timedelta(minutes=70))
    script.add("prices of AWS", "prices", tables=tables())
    script.settings(document())
    script.tick(MONDAY + HOUR)
    script.invoke("prices")
    remembered = MONDAY + 15 * DAY  # a tick two weeks before the day that its sums are compared with
    for begin, finish in ((MONDAY, remembered), (remembered, reviewed)):
        script.now = finish + timedelta(minutes=4)
        script.command("backfill", "--from", text(begin), "--to", text(finish), "--no-wait")
        script.deliver()
        script.tick(finish)
    script.tick(reviewed + HOUR)
    script.now += timedelta(hours=3)
    script.invoke("recommend", scheduled_time=text(script.now))
    _recommendations(script)
    first = script.steps[-2]["name"]
    of_demo = "${" + first + "|rows.[kind=idle&subject/workload=demo].id}"
    script.command("recommendations", "list", "--state", "all", form="json")
    script.command("recommendations", "show", of_demo)
    script.command("recommendations", "dismiss", of_demo, "--reason", "kept for visitors")
    for day in range(REVIEWED + 1, DAYS + 1):
        at = MONDAY + day * DAY
        script.now = at + timedelta(minutes=1)
        script.invoke("prices")
        script.tick(at)
        if day in (REVIEWED + 1, REVIEWED + 3, DAYS - 1):
            script.now = at + timedelta(hours=4, minutes=10)
            script.invoke("recommend", scheduled_time=text(script.now))
            _recommendations(script)
        if day in (27, 28):  # the first of the month, and a Monday
            for hour in (6, 8):
                script.tick(at + hour * HOUR)
        script.ask("/v1/alerts", {"start": text(at - DAY), "end": text(at + DAY)})
    script.now = end + timedelta(minutes=30)
    script.command("recommendations", "reopen", of_demo)
    script.settings(document(*ODD_CLUSTERS, access=GRANTS, lookback_hours=3))
    script.command("backfill", "--from", text(ODD - HOUR), "--to", text(ODD + 2 * HOUR), "--no-wait")
    script.deliver()
    script.add("a malformed message", "send", queue="hours", message={"version": 1, "kind": "nonsense"})
    script.add(
        "an alert of AMP",
        "publish",
        message={
            "kind": "amp-alerts",
            "alerts": [
                {
                    "status": "firing",
                    "startsAt": text(end),
                    "annotations": {"summary": "at 93% of its limit"},
                    "labels": {
                        "alertname": "GPUNodePoolNearLimit",
                        "cluster": "prod",
                        "nodepool": "solo",
                        "severity": "warning",
                    },
                },
                {
                    "status": "firing",
                    "startsAt": text(end),
                    "annotations": {},
                    "labels": {"alertname": "Elsewhere", "cluster": "x"},
                },
            ],
        },
    )
    script.deliver()
    for hour in (1, 2, 3, 4):
        script.tick(end + hour * HOUR)
        script.now += timedelta(minutes=10)
        if hour == 2:
            script.command("hours", "redrive", "--dry-run")
            script.add("dead letters", "dead letters")
        if hour == 3:
            script.add(
                "an alert of AMP is over",
                "publish",
                message={
                    "kind": "amp-alerts",
                    "alerts": [
                        {
                            "status": "resolved",
                            "startsAt": text(end),
                            "annotations": {},
                            "labels": {"alertname": "GPUNodePoolNearLimit", "cluster": "prod", "nodepool": "solo"},
                        }
                    ],
                },
            )
            script.command(
                "alerts",
                "acknowledge",
                "${" + f"admin: /v1/alerts?start={text(end - DAY)}&end={text(end + DAY)}" + "|active.0.id}",
            )
    last = end + 4 * HOUR
    script.now = last + timedelta(minutes=30)
    script.invoke("recommend", scheduled_time=text(script.now))
    for granularity in ("day", "week", "month", "total"):
        period = {"start": text(MONDAY), "end": text(last), "granularity": granularity}
        script.ask("/v1/costs", {**period, "group_by": "business_unit,cluster"})
    for path, query, pages in requests(last - 12 * DAY, last, ("research", "vision", "speech")):
        if path not in ("/allocation/compute",) and query.get("idle") != "shared-evenly":
            script.ask(path, query, pages=pages)
    for path, query, pages in list(opencost(MONDAY + 14 * DAY, end))[:8]:
        script.ask(path, query, pages=pages)
    for name in ODD_CLUSTERS:
        period = {"start": text(ODD - HOUR), "end": text(ODD + 2 * HOUR), "cluster": name}
        script.ask("/v1/fleet", {**period, "granularity": "hour"})
        script.ask("/v1/costs", {**period, "granularity": "hour", "group_by": "pod", "idle": "shared-by-allocation"})
        script.ask("/v1/hours", period)
    for kind in ("idle", "fewer-gpus", "commitment", "mig-geometry"):
        script.ask("/v1/recommendations", {"kind": kind, "state": "all", "business_unit": "*"})
    script.ask("/v1/recommendations", {"business_unit": "vision"})
    for by in ("viewer", "research", "two units", "stranger"):
        for path, query in (
            ("/v1/recommendations", {"state": "all"}),
            ("/v1/forecasts", {"business_unit": "research"}),
            ("/v1/forecasts", {"business_unit": "vision"}),
            ("/v1/alerts", {"start": text(last - DAY), "end": text(last)}),
        ):
            script.ask(path, query, by=by, fails=None)
    script.command(
        "recommendations",
        "what-if",
        "--business-unit",
        "speech",
        "--move",
        "2 H100 to 1g.10gb",
        "--days",
        "20",
        form="json",
    )
    script.command(
        "alerts",
        "replay",
        "--from",
        text(last - 5 * DAY),
        "--to",
        text(last),
        "--settings",
        "{file:new.json}",
        files={"new.json": document()},
    )
    script.command("months", "close", "--month", "2026-10", "--force")
    script.command("report", "--api", "{outside}/api", "--window", "lastmonth", "--granularity", "week", form="json")
    return {
        "parameters": {"SpotPrices": "true", "OnDemandPrices": "true"},
        "secrets": {"gpucost/slack": "{outside}/slack/costs", "gpucost/token": "token"},
        "callers": CALLERS,
        "steps": script.steps,
    }
