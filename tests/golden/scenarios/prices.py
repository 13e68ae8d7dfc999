"""Prices: every source, split policies, changes of the past, a closed month; units by namespace, label and date."""

import base64
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpucost_devstack.bill import items as bill
from gpucost_devstack.bill.export import write_export
from gpucost_devstack.fleet.builders import gpu_node, mig_mixed_geometry, time_sliced_geometry, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import GPU, KubeStateMetrics, Pod, Scenario
from tests.golden.adapter import write_metrics as write
from tests.golden.scenarios.building import CALLERS, HOUR, Script, text

BASE = datetime(2026, 10, 31, 18, tzinfo=UTC)
HOURS = 16
END = BASE + HOURS * HOUR
ZONES = {"eu-central-1a": "euc1-az2", "eu-central-1b": "euc1-az3"}
BLOCK = "cr-0123456789abcdef0"
PLAN = "arn:aws:savingsplans::111122223333:savingsplan/5d1e4f6a"
RESERVATION = "cr-00000000000000abc"


def _labels(pool: str, capacity: str, zone: str = "eu-central-1a", **more: str) -> dict[str, str]:
    return {
        "topology_kubernetes_io_zone": zone,
        "topology_k8s_aws_zone_id": ZONES[zone],
        "karpenter_sh_nodepool": pool,
        "karpenter_sh_capacity_type": capacity,
        **more,
    }


def _node(name: str, model: str, geometry: Any, labels: dict[str, str], **more: Any) -> Any:
    zone = labels["topology_kubernetes_io_zone"]
    number = sum(map(ord, name))
    return gpu_node(name, model, geometry, labels=labels, provider_id=f"aws:///{zone}/i-0{number:04x}", **more)


def instance(name: str) -> str:
    """A node's instance."""
    return f"i-0{sum(map(ord, name)):04x}"


def fleets() -> list[Scenario]:
    """`west` has a node of every kind of price; `lab` one that nothing prices."""
    general = _node("general-1", "a10g", whole_gpus_geometry("a10g"), _labels("general", "on-demand"))
    planned = _node(
        "general-2", "a10g", whole_gpus_geometry("a10g", allocatable={GPU: 3}), _labels("general", "on-demand")
    )
    until = 60 * 6 + 24
    spot = _node(
        "spot-1",
        "a10g-one",
        whole_gpus_geometry("a10g-one"),
        _labels("spot", "spot", "eu-central-1b"),
        lifetime=(-200, until),
    )
    joins = until + 10
    again = _node(
        "spot-2",
        "a10g-one",
        whole_gpus_geometry("a10g-one", (joins + 2, 1e6)),
        _labels("spot", "spot", "eu-central-1b"),
        lifetime=(joins, 1e6),
    )
    reserved = {"karpenter_k8s_aws_capacity_reservation_id": BLOCK}
    blocks = [
        _node(f"block-{i}", "h100", whole_gpus_geometry("h100"), _labels("block", "reserved", **reserved))
        for i in (1, 2)
    ]
    slices = _node(
        "slices-1", "h100-one", mig_mixed_geometry("h100-one", [["2g.20gb"] * 3]), _labels("slices", "on-demand")
    )
    shared = _node("shared-1", "t4", time_sliced_geometry("t4", 4), _labels("shared", "on-demand"))
    team = {"label_team": "vision", "label_app": "detect"}
    pods = [
        Pod(
            "chat-0",
            general,
            [0],
            ((-1e6, "0.5"),),
            namespace="chat",
            owners=(("ReplicaSet", "chat-1"), ("Deployment", "chat")),
        ),
        Pod(
            "chat-1",
            general,
            [1],
            ((-1e6, "0.2"), (200, "0.9")),
            namespace="chat",
            owners=(("ReplicaSet", "chat-1"), ("Deployment", "chat")),
        ),
        Pod(
            "train-0",
            general,
            [2],
            ((-1e6, "0.85"),),
            namespace="research-nlp",
            owners=(("PyTorchJob", "train"),),
            bound_at=-20,
            running_at=4,
            finished_at=60 * 9 + 13,
            deleted_at=60 * 10,
        ),
        Pod("bench", planned, [0], ((-1e6, "0.33"),), namespace="research-vision", bound_at=90),
        Pod("probe", planned, [1], ((-1e6, "0.01"),), namespace="gpu-operator", owners=(("DaemonSet", "probe"),)),
        Pod(
            "render-0",
            spot,
            [0],
            ((-1e6, "0.7"),),
            namespace="render",
            owners=(("Job", "render"),),
            deleted_at=until + 3,
        ),
        Pod(
            "render-1",
            again,
            [0],
            ((-1e6, "0.75"),),
            namespace="render",
            owners=(("Job", "render"),),
            bound_at=joins + 4,
        ),
        Pod(
            "detect-0",
            blocks[0],
            range(6),
            ((-1e6, "0.91"),),
            namespace="common",
            requests={"main": {GPU: 6}},
            labels=team,
            owners=(("StatefulSet", "detect"),),
        ),
        Pod(
            "detect-1",
            blocks[1],
            range(8),
            ((-1e6, "0.4"), (400, "0.62")),
            namespace="common",
            requests={"main": {GPU: 8}},
            labels=team,
            owners=(("StatefulSet", "detect"),),
        ),
        Pod(
            "small-0", slices, [0], ((-1e6, "0.6"),), namespace="chat", requests={"main": {"nvidia_com_mig_2g_20gb": 1}}
        ),
        Pod(
            "small-1",
            slices,
            [1],
            ((-1e6, "0.3"),),
            namespace="moving",
            requests={"main": {"nvidia_com_mig_2g_20gb": 1}},
            bound_at=70,
            deleted_at=600,
        ),
        *(
            Pod(f"shared-{i}", shared, [0], ((-1e6, use),), namespace=space)
            for i, (use, space) in enumerate((("0.2", "research-nlp"), ("0.15", "chat"), ("0.05", "monitoring")))
        ),
    ]
    west = Scenario(
        "west",
        [general, planned, spot, again, *blocks, slices, shared],
        pods,
        start=-80,
        end=60 * HOURS + 30,
        namespace_labels={"chat": {"label_cost_center": "cc-7"}, "render": {"label_cost_center": "cc-9"}},
        ksm=[KubeStateMetrics(pod_times=True)],
    )
    labels = {**_labels("lab", "on-demand")}
    bench = gpu_node(
        "bench-1",
        "t4",
        whole_gpus_geometry("t4"),
        labels=labels,
        instance_type="g6.xlarge",
        provider_id="aws:///eu-central-1a/i-0lab",
    )
    probe = [Pod("probe", bench, [0], ((-1e6, "0.44"),), namespace="lab"), Pod("waits", None, namespace="lab")]
    return [west, Scenario("lab", [bench], probe, start=-80, end=60 * HOURS + 30)]


def write_metrics(folder: Path) -> None:
    """What Prometheus scraped."""
    write({BASE: fleets()}, folder)


def tables() -> dict[str, Any]:
    """What AWS says of prices at first."""
    hours = [(-30, "0.4021"), (2, "0.4433"), (5, "0.3999"), (9, "0.52")]
    spot = [["g5.xlarge", "eu-central-1b", "Linux/UNIX", text(BASE + h * HOUR), amount] for h, amount in hours]
    spot += [["g5.xlarge", "eu-central-1a", "Linux/UNIX", text(BASE - 50 * HOUR), "0.3333"]]
    offers = [
        {"instance_type": name, "region": "eu-central-1", "amount": amount, "since": "2026-10-01T00:00:00Z"}
        for name, amount in (
            ("g5.12xlarge", "7.0910000000"),
            ("p5.4xlarge", "8.6007"),
            ("g4dn.xlarge", "0.6580000000"),
            ("p5.48xlarge", "69.31"),
            ("g5.xlarge", "1.2580"),
        )
    ]
    shapes = {
        "g6.xlarge": {"gpus": 1, "vcpus": 4, "mib": 16384},
        "g5.12xlarge": {"gpus": 4, "vcpus": 48, "mib": 196608},
    }
    return {"zones": ZONES, "spot": spot, "offers": offers, "shapes": shapes}


def exported(*, closed: bool) -> dict[str, str]:
    """The bill of October's last hours and November's first, as the Parquet files of an export."""
    rows = []
    for number in range(HOURS if closed else HOURS - 4):
        at = BASE + number * HOUR
        rows += [bill.on_demand(instance("general-1"), "g5.12xlarge", at, "6.61" if closed else "6.95")]
        rows += bill.savings_plan_covered(instance("general-2"), "g5.12xlarge", at, "4.11", listed="7.091", plan=PLAN)
        rows += [bill.savings_plan_fee(PLAN, at, "6.5", "4.11")]
        rows += [bill.on_demand(instance("slices-1"), "p5.4xlarge", at, "8.6007")]
        rows += [bill.capacity_block(instance("block-1"), "p5.48xlarge", at, BLOCK)]
        rows += bill.unused_capacity_reservation(RESERVATION, "p5.48xlarge", at, "61.5", hours="0.5")
        rows += bill.other_charges(instance("general-1"), "g5.12xlarge", at) if number == 1 else []
        if number < 6:
            rows.append(bill.spot(instance("spot-1"), "g5.xlarge", at, "0.4102"))
        if number == 6:
            rows.append(bill.spot(instance("spot-1"), "g5.xlarge", at, "0.1633", hours="0.4"))
            rows.append(bill.spot(instance("spot-2"), "g5.xlarge", at, "0.1755", hours="0.433333333"))
        if number > 6:
            rows.append(bill.spot(instance("spot-2"), "g5.xlarge", at, "0.405"))
    if closed:
        month = datetime(2026, 10, 1, tzinfo=UTC)
        ri = "arn:aws:ec2:eu-central-1:111122223333:reserved-instances/1234"
        rows.append(bill.reserved_instance_fee(ri, "g4dn.xlarge", month, unused="144", unused_hours="360"))
    with tempfile.TemporaryDirectory() as folder:
        write_export(Path(folder), rows, invoice="EUINV-1" if closed else "")
        return {
            str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode()
            for path in sorted(Path(folder).glob("*/*.parquet"))
        }


UNITS: list[dict[str, Any]] = [
    {"name": "research", "namespaces": ["research-*", "moving"]},
    {"name": "assistant", "namespace_labels": {"cost-center": "cc-7"}},
    {"name": "vision", "pod_labels": {"team": "vision"}},
]
LATER_UNITS: list[dict[str, Any]] = [
    *UNITS,
    {"name": "research", "namespaces": ["research-*"], "from": text(BASE + 3 * HOUR)},
    {"name": "media", "namespaces": ["render", "moving"], "from": text(BASE + 3 * HOUR)},
    {"name": "platform", "namespaces": ["gpu-operator", "monitoring"], "distribute": "proportional"},
]
BLOCKS = [
    {
        "reservation_id": BLOCK,
        "instance_type": "p5.48xlarge",
        "instances": 3,
        "fee_usd": 5437.44,
        "cluster": "west",
        "from": text(BASE - 8 * HOUR),
        "until": text(BASE + 12 * HOUR),
    }
]
CUR = {"database": "billing", "table": "bill", "amount": "amortized", "unused_commitments_to": "west"}


def document(sources: list[str], **more: Any) -> dict[str, Any]:
    """The settings."""
    pricing = {"sources": sources, "capacity_blocks": BLOCKS, **more.pop("pricing", {})}
    return {
        "clusters": [
            {"name": name, "prometheus": {"url": f"{{outside}}/prometheus/{name}"}, "selector": {"cluster": name}}
            for name in ("west", "lab")
        ],
        "pricing": pricing,
        "business_units": UNITS,
        "cost_labels": ["team", "app"],
        "lookback_hours": 3,
        "alerts": {"rules": [{"rule": "data", "price_age_hours": 1}], "receivers": [{"type": "email"}]},
        **more,
    }


def inputs() -> dict[str, Any]:
    """All steps."""
    script = Script(BASE + timedelta(minutes=50))
    whole = {"start": text(BASE), "end": text(END)}
    sources = ["capacity-block", "spot", "on-demand"]
    script.add("prices of AWS", "prices", tables=tables())
    script.settings(document(sources))

    def hourly(hour: datetime) -> None:
        script.now = hour + timedelta(minutes=1)
        script.invoke("prices", new_only=True)
        script.tick(hour)

    def look(cluster: str) -> None:
        script.ask("/v1/costs", {**whole, "granularity": "hour", "group_by": "business_unit"})
        script.ask("/v1/fleet", {**whole, "granularity": "hour"})
        script.ask("/v1/nodes", whole)
        script.ask("/v1/restatements", {**whole, "cluster": cluster} if cluster else whole)

    for number in range(1, 5):
        hourly(BASE + number * HOUR)
    look("")
    script.command(
        "prices",
        "set",
        "--match",
        "instance_type=g6.*",
        "--match",
        "cluster=lab",
        "--amount",
        "0.8048",
        "--unit",
        "node-hour",
        "--from",
        text(BASE + HOUR),
        "--reason",
        "list price of the lab",
    )
    script.command(
        "prices",
        "set",
        "--match",
        "node=general-2",
        "--amount",
        "1.25",
        "--unit",
        "gpu-hour",
        "--from",
        text(BASE + HOUR),
        "--to",
        text(BASE + 3 * HOUR),
        "--reason",
        "agreed",
    )
    script.command(
        "prices",
        "set",
        "--match",
        "instance_type=g4dn.xlarge",
        "--amount",
        "0.65",
        "--unit",
        "of-on-demand",
        "--reason",
        "discount",
    )
    hourly(BASE + 5 * HOUR)
    look("lab")
    changed = tables()
    changed["spot"].append(["g5.xlarge", "eu-central-1b", "Linux/UNIX", text(BASE + 3 * HOUR), "0.6125"])
    script.add("a spot price of the past comes late", "prices", tables=changed)
    hourly(BASE + 6 * HOUR)
    script.command("prices", "list", "--from", text(BASE), "--to", text(BASE + 6 * HOUR), form="json")
    script.command(
        "prices",
        "drop",
        "${gpucost prices list --from " + f"{text(BASE)} --to {text(BASE + 6 * HOUR)}" + "|prices.[reason=agreed].id}",
        "--at",
        text(BASE + 2 * HOUR),
        "--reason",
        "typo",
    )
    hourly(BASE + 7 * HOUR)
    look("west")
    for split in ("scad", "opencost", "datadog", {"gpu": 9, "vcpu": 0.9, "gib": 0.1}):
        script.now += timedelta(minutes=2)
        script.settings(
            document(
                sources,
                pricing={"split": split, "discounts": [{"percent": 12, "instance_type": "g5.*"}]},
                business_units=LATER_UNITS,
            )
        )
        script.now += timedelta(minutes=2)
        script.command(
            "hours",
            "restate",
            "--from",
            text(BASE),
            "--to",
            text(BASE + 4 * HOUR),
            "--settings",
            "current",
            "--reason",
            f"split by {split if isinstance(split, str) else 'own weights'}",
        )
        script.deliver()
        look("west")
    script.command("hours", "compare-splits", "--from", text(BASE), "--to", text(BASE + 6 * HOUR), form="json")
    billed = document(["capacity-block", "cur", "spot", "on-demand"], pricing={"cur": CUR}, business_units=LATER_UNITS)
    script.now += timedelta(minutes=2)
    script.settings(billed)
    for number in range(8, HOURS + 1):
        hourly(BASE + number * HOUR)
    look("")
    script.add("the bill", "prices", tables={"bill": exported(closed=False)})
    script.now = END + timedelta(hours=1, minutes=31)
    script.invoke("prices")
    script.command(
        "hours", "restate", "--from", text(BASE), "--to", text(END), "--settings", "current", "--reason", "the bill"
    )
    script.tick(END + 2 * HOUR)
    look("")
    script.ask("/v1/prices", {**whole, "source": "spot"})
    script.ask("/v1/prices", {**whole, "instance_type": "g5.xlarge"}, pages=True)
    script.ask("/v1/costs", {**whole, "granularity": "month", "group_by": "business_unit,cluster"})
    script.now = END + timedelta(hours=3, minutes=31)
    script.command("months", "close", "--month", "2026-10", fails=True)
    script.command("months", "close", "--month", "2026-10", "--force", "--reason", "chargeback")
    script.add("the closed bill", "prices", tables={"bill": exported(closed=True)})
    script.now += timedelta(minutes=1)
    script.invoke("prices", source="cur")
    script.tick(END + 4 * HOUR)
    script.command("hours", "restate", "--from", text(BASE), "--to", text(END), "--reason", "the bill is closed")
    script.deliver()
    look("")
    script.command("months", "adjustments", "--month", "2026-10", form="json")
    script.command("months", "adjustments", "--month", "2026-10", form="csv")
    script.invoke("export", scheduled_time=text(script.now), cluster="west", first_day="2026-10-31T00:00:00Z", days=2)
    script.add("exported files", "export", prefix="focus/")
    script.now += timedelta(minutes=2)
    script.command("months", "reopen", "--month", "2026-10")
    look("")
    script.command("prices", "changes", "--from", "2026-10-20T00:00:00Z", form="json")
    script.command("prices", "changes", form="csv")
    script.ask(
        "/allocation/compute",
        {
            "window": f"{text(BASE)},{text(END)}",
            "aggregate": "cluster,namespace",
            "includeIdle": "true",
            "accumulate": "true",
        },
    )
    return {
        "parameters": {
            "SpotPrices": "true",
            "OnDemandPrices": "true",
            "BillPrices": "true",
            "BillDatabase": "billing",
            "BillBucket": "billing-bucket",
            "BillResultsBucket": "billing-results",
            "BillingAccountId": "999988887777",
        },
        "callers": CALLERS,
        "steps": script.steps,
    }
