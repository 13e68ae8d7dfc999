"""The demo's cluster over three days: three business units on MIG slices, and other typical workloads.

- `mig`: one H100 in seven slices, held 3/2/2 by bu-a, bu-b and bu-c
- `inference`: two nodes of four whole GPUs; a service that is busy by day, notebooks that hold two idle GPUs
- `batch`: spot nodes that join and leave with their jobs, one reclaimed in the middle of an hour
- a nightly job whose finished pod remains, and a pod that pulls its image for 15 minutes
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from gpucost_devstack.fleet.builders import gpu_node, mig_single_geometry, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import GPU, Interval, Node, Pod, Scenario, Use

CLUSTER = "demo"
DAYS = 3
HOURS = 24 * DAYS
GPU_HOURLY_USD = Decimal(12)
END_MINUTE = 60 * HOURS
WHOLE_PERIOD: Interval = (0, END_MINUTE)


def start_for(end: datetime) -> datetime:
    """The start of the three days that end at a time."""
    return end - timedelta(days=DAYS)


def scenario(end: datetime) -> Scenario:
    """The demo cluster during three days that end at a full hour."""
    first_hour = start_for(end).hour
    mig = gpu_node(
        "mig-1",
        "h100-one",
        mig_single_geometry("h100-one", "1g.10gb", 7, WHOLE_PERIOD),
        lifetime=WHOLE_PERIOD,
        labels=_node_labels("mig"),
    )
    inference = [
        gpu_node(
            f"inference-{i}",
            "a10g",
            whole_gpus_geometry("a10g", WHOLE_PERIOD),
            lifetime=WHOLE_PERIOD,
            labels=_node_labels("inference"),
        )
        for i in (1, 2)
    ]
    spot = list(_spot_nodes(first_hour))
    pods = [
        *_mig_slice_workloads(mig, first_hour),
        *_inference_service(inference[0], first_hour),
        *_notebook_pods(inference[1]),
        *_nightly_job_pods(inference[1], end),
        *(_spot_job(spot_node) for spot_node in spot),
    ]
    return Scenario(CLUSTER, (mig, *inference, *spot), pods, start=0, end=END_MINUTE, hours=range(HOURS))


def _mig_slice_workloads(mig: Node, first_hour: int) -> Iterator[Pod]:
    slice_index = 0
    for namespace, units, use in (
        ("bu-a", 3, _constant_use("0.62")),
        ("bu-b", 2, _use_by_daytime("0.45", "0.12", first_hour)),
        ("bu-c", 2, _constant_use("0.045")),
    ):
        for i in range(units):
            owners = (("ReplicaSet", f"{namespace}-app-6f7d"), ("Deployment", f"{namespace}-app"))
            name = f"{namespace}-app-6f7d-{i}"
            yield Pod(
                name, mig, [slice_index], use, namespace=namespace, bound_at=0, deleted_at=END_MINUTE, owners=owners
            )
            slice_index += 1


def _inference_service(on: Node, first_hour: int) -> Iterator[Pod]:
    owners = (("ReplicaSet", "chat-5c9b"), ("Deployment", "chat"))
    use = _use_by_daytime("0.71", "0.08", first_hour)
    for i in range(4):
        # The fourth replica was added on the second day, and its image pull takes 15 minutes.
        start, pull = (30 * 60, 15) if i == 3 else (0, 0)
        yield Pod(
            f"chat-5c9b-{i}",
            on,
            [i],
            use,
            namespace="chat",
            owners=owners,
            bound_at=start,
            running_at=start + pull,
            deleted_at=END_MINUTE,
        )


def _notebook_pods(on: Node) -> Iterator[Pod]:
    for i in range(2):
        owners = (("StatefulSet", "notebook"),)
        use = _constant_use("0.003")
        yield Pod(
            f"notebook-{i}", on, [i], use, namespace="notebooks", owners=owners, bound_at=0, deleted_at=END_MINUTE
        )


def _nightly_job_pods(on: Node, end: datetime) -> Iterator[Pod]:
    for minute in range(0, END_MINUTE, 60):
        at = start_for(end) + timedelta(minutes=minute)
        if at.hour == 1 and minute:
            name = f"train-{at:%d}"
            yield Pod(
                name,
                on,
                [2, 3],
                _constant_use("0.93"),
                namespace="training",
                owners=(("Job", name), ("CronJob", "train")),
                requests={"main": {GPU: 2}},
                bound_at=minute,
                finished_at=minute + 260,
                deleted_at=min(END_MINUTE, minute + 620),
            )


def _spot_nodes(first_hour: int) -> Iterator[Node]:
    for day in range(DAYS + 1):
        for number, (start_hour, lifetime_hours) in enumerate(((9, 5.5), (10, 3.25), (14, 6))):
            begin = day * 1440 + (start_hour - first_hour) * 60
            lifetime = (begin, min(END_MINUTE, begin + lifetime_hours * 60))
            if 0 <= lifetime[0] < lifetime[1]:
                labels = _node_labels("batch", "spot")
                yield gpu_node(
                    f"spot-{day}{number}",
                    "a10g-one",
                    whole_gpus_geometry("a10g-one", lifetime),
                    lifetime=lifetime,
                    labels=labels,
                )


def _spot_job(on: Node) -> Pod:
    """A job on a spot node. Its pod object remains for some minutes after the node has left."""
    start = on.lifetime[0] + 4
    name = f"render-{on.name}"
    return Pod(
        name,
        on,
        [0],
        _constant_use("0.88"),
        namespace="render",
        owners=(("Job", name),),
        bound_at=start,
        running_at=start + 2,
        deleted_at=min(END_MINUTE, on.lifetime[1] + 5),
    )


def _node_labels(pool: str, capacity_type: str = "on-demand") -> dict[str, str]:
    return {
        "topology_kubernetes_io_zone": "eu-central-1a",
        "karpenter_sh_nodepool": pool,
        "karpenter_sh_capacity_type": capacity_type,
    }


def _constant_use(use: str) -> Use:
    return ((0, use),)


def _use_by_daytime(day: str, night: str, first_hour: int) -> Use:
    """Use that is high from 07:00 to 19:00 UTC."""
    return [(60 * i, day if 7 <= (first_hour + i) % 24 < 19 else night) for i in range(HOURS)]
