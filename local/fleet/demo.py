"""The demo's cluster over three days: the proof of concept's three units on MIG slices, and what else real fleets have.

- `mig`: one H100 in seven slices, held 3/2/2 by bu-a, bu-b and bu-c, as in the proof of concept
- `inference`: two nodes of four whole GPUs; a service that is busy by day, notebooks that hold two GPUs and do nothing
- `batch`: spot nodes that come and go with their work, one taken back in the middle of an hour
- a nightly job that ends and is left lying, and a pod that pulls its image for a quarter of an hour
"""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from local.fleet.scenario import Node, Pod, Scenario, Use

CLUSTER = "demo"
DAYS = 3
GPU_HOURLY_USD = Decimal(12)


def scenario(end: datetime) -> Scenario:
    """Three days that end at a full hour."""
    start = end - timedelta(days=DAYS)
    mig = _node("mig-1", "p5.4xlarge", 1, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "mig", start, end, slices=7)
    whole = [_node(f"inference-{i}", "g5.12xlarge", 4, "NVIDIA-A10G", "inference", start, end) for i in (1, 2)]
    spot = _spot_nodes(start, end)
    pods = [
        *_slices(mig, start, end),
        *_service(whole, start, end),
        *_notebooks(whole[1], start, end),
        *_nightly_jobs(whole[1], start, end),
        *(_batch(node) for node in spot),
    ]
    return Scenario(CLUSTER, start, end, (mig, *whole, *spot), tuple(pods))


def _slices(node: Node, start: datetime, end: datetime) -> list[Pod]:
    pods: list[Pod] = []
    for namespace, units, use in (
        ("bu-a", 3, _flat("0.62")),
        ("bu-b", 2, _by_hour("0.45", "0.12")),
        ("bu-c", 2, _flat("0.045")),
    ):
        for i in range(units):
            owners = (("ReplicaSet", f"{namespace}-app-6f7d"), ("Deployment", f"{namespace}-app"))
            pods.append(_pod(namespace, f"{namespace}-app-6f7d-{i}", node, 1, len(pods), start, end, use, owners))
    return pods


def _service(nodes: list[Node], start: datetime, end: datetime) -> list[Pod]:
    owners = (("ReplicaSet", "chat-5c9b"), ("Deployment", "chat"))
    pods = [
        _pod("chat", f"chat-5c9b-{i}", nodes[0], 1, i, start, end, _by_hour("0.71", "0.08"), owners) for i in range(3)
    ]
    # Scaled up on the second day; its image takes a quarter of an hour to arrive.
    later = start + timedelta(hours=30)
    slow = timedelta(minutes=15)
    pods.append(_pod("chat", "chat-5c9b-3", nodes[0], 1, 3, later, end, _by_hour("0.71", "0.08"), owners, pull=slow))
    return pods


def _notebooks(node: Node, start: datetime, end: datetime) -> list[Pod]:
    owners = (("StatefulSet", "notebook"),)
    return [_pod("notebooks", f"notebook-{i}", node, 1, i, start, end, _flat("0.003"), owners) for i in range(2)]


def _nightly_jobs(node: Node, start: datetime, end: datetime) -> list[Pod]:
    pods = []
    day = start.replace(hour=1)
    while day < end:
        if day > start:
            name = f"train-{day:%d}"
            owners = (("Job", name), ("CronJob", "train"))
            ends = day + timedelta(hours=4, minutes=20)
            pod = _pod("training", name, node, 2, 2, day, min(end, ends + timedelta(hours=6)), _flat("0.93"), owners)
            pods.append(replace(pod, finished=ends))
        day += timedelta(days=1)
    return pods


def _spot_nodes(start: datetime, end: datetime) -> list[Node]:
    nodes = []
    for day in range(DAYS):
        for number, (comes, stays) in enumerate(((9, 5.5), (10, 3.25), (14, 6))):
            begin = start.replace(hour=0) + timedelta(days=day, hours=comes)
            finish = min(end, begin + timedelta(hours=stays))
            if start <= begin < finish:
                nodes.append(
                    _node(f"spot-{day}{number}", "g5.xlarge", 1, "NVIDIA-A10G", "batch", begin, finish, spot=True)
                )
    return nodes


def _batch(node: Node) -> Pod:
    """Work on a spot node from soon after it joins; its pod object outlives the node by some minutes."""
    begin = node.start + timedelta(minutes=4)
    owners = (("Job", f"render-{node.name}"),)
    gone = node.end + timedelta(minutes=5)
    return _pod(
        "render", f"render-{node.name}", node, 1, 0, begin, gone, _flat("0.88"), owners, pull=timedelta(minutes=2)
    )


def _node(
    name: str, kind: str, gpus: int, product: str, pool: str, start: datetime, end: datetime,
    *, slices: int = 1, spot: bool = False,
) -> Node:  # fmt: skip
    return Node(
        name=name,
        instance_type=kind,
        gpus=gpus,
        product=product,
        model=product.split("-MIG-", maxsplit=1)[0].replace("-", " "),
        node_pool=pool,
        start=start,
        end=end,
        slices_per_gpu=slices,
        mig_profile=product.partition("-MIG-")[2],
        capacity_type="spot" if spot else "on-demand",
    )


def _pod(
    namespace: str, name: str, node: Node, units: int, device: int, start: datetime, end: datetime, use: Use,
    owners: tuple[tuple[str, str], ...], *, pull: timedelta = timedelta(0),
) -> Pod:  # fmt: skip
    uid = f"uid-{namespace}-{name}"
    return Pod(namespace, name, uid, node, units, device, start, start + pull, end, use, owners=owners)


def _flat(use: str) -> Use:
    return lambda _: Decimal(use)


def _by_hour(day: str, night: str) -> Use:
    """Busy from 07:00 to 19:00 UTC."""
    return lambda hour: Decimal(day if 7 <= hour.hour < 19 else night)
