"""The demo's cluster over three days: the proof of concept's three units on MIG slices, and what else real fleets have.

- `mig`: one H100 in seven slices, held 3/2/2 by bu-a, bu-b and bu-c, as in the proof of concept
- `inference`: two nodes of four whole GPUs; a service that is busy by day, notebooks that hold two GPUs and do nothing
- `batch`: spot nodes that come and go with their work, one taken back in the middle of an hour
- a nightly job that ends and is left lying, and a pod that pulls its image for a quarter of an hour

Minutes count from the first of the three days' hours.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from local.fleet.builders import mig_single, node, whole
from local.fleet.scenario import GPU, Life, Minutes, Node, Pod, Scenario, Use

CLUSTER = "demo"
DAYS = 3
HOURS = 24 * DAYS
END = 60 * HOURS
GPU_HOURLY_USD = 12
DAY_BEGINS, DAY_ENDS = 7, 19
"""UTC hours between which people work."""
Owners = Sequence[tuple[str, str]]


def starts(end: datetime) -> datetime:
    """When the three days begin that end at a full hour."""
    return end - timedelta(hours=HOURS)


def scenario(end: datetime) -> Scenario:
    """Three days that end at a full hour; nothing is known of the time before and after."""
    clock = _Clock(starts(end))
    always = (0, END)
    mig = _node("mig-1", "h100-one", "mig", always, slices=7)
    inference = [_node(f"inference-{i}", "a10g", "inference", always) for i in (1, 2)]
    spot = [
        _node(f"spot-{day}{number}", "a10g-one", "batch", life, capacity_type="spot")
        for day, number, life in _spot_lives(clock)
    ]
    pods = [
        *_slices(mig, clock),
        *_service(inference[0], clock),
        *_notebooks(inference[1]),
        *_nightly_jobs(inference[1], clock),
        *(_batch(one) for one in spot),
    ]
    return Scenario(CLUSTER, [mig, *inference, *spot], pods, start=0, end=END, hours=range(HOURS))


class _Clock:
    """Which time of the day the scenario's minutes are."""

    def __init__(self, start: datetime) -> None:
        self._start = start

    def minute(self, day: int, hour: float) -> Minutes:
        """The minute of a time of the day; day 0 is the one on which the scenario begins."""
        midnight = self._start.replace(hour=0)
        return (midnight + timedelta(days=day, hours=hour) - self._start) / timedelta(minutes=1)

    def by_day(self, day: str, night: str) -> Use:
        """Use that is one by day and another by night."""
        curve: list[tuple[Minutes, str]] = []
        for number in range(-1, DAYS + 1):
            curve += [(self.minute(number, DAY_BEGINS), day), (self.minute(number, DAY_ENDS), night)]
        return curve


def _slices(on: Node, clock: _Clock) -> Iterator[Pod]:
    place = 0
    for namespace, units, use in (
        ("bu-a", 3, _flat("0.62")),
        ("bu-b", 2, clock.by_day("0.45", "0.12")),
        ("bu-c", 2, _flat("0.045")),
    ):
        owners = (("ReplicaSet", f"{namespace}-app-6f7d"), ("Deployment", f"{namespace}-app"))
        for i in range(units):
            yield _pod(namespace, f"{namespace}-app-6f7d-{i}", on, [place], (0, END), use, owners)
            place += 1


def _service(on: Node, clock: _Clock) -> Iterator[Pod]:
    owners = (("ReplicaSet", "chat-5c9b"), ("Deployment", "chat"))
    use = clock.by_day("0.71", "0.08")
    for i in range(3):
        yield _pod("chat", f"chat-5c9b-{i}", on, [i], (0, END), use, owners)
    # Scaled up on the second day; its image takes a quarter of an hour to arrive.
    later = 60 * 30
    yield _pod("chat", "chat-5c9b-3", on, [3], (later, END), use, owners, running=later + 15)


def _notebooks(on: Node) -> Iterator[Pod]:
    for i in range(2):
        yield _pod("notebooks", f"notebook-{i}", on, [i], (0, END), _flat("0.003"), (("StatefulSet", "notebook"),))


def _nightly_jobs(on: Node, clock: _Clock) -> Iterator[Pod]:
    for day in range(DAYS + 1):
        begins = clock.minute(day, 1)
        if 0 < begins < END:
            owners = (("Job", f"train-{day}"), ("CronJob", "train"))
            ends = begins + 4 * 60 + 20
            life = (begins, min(END, ends + 6 * 60))
            yield _pod("training", f"train-{day}", on, [2, 3], life, _flat("0.93"), owners, finished=ends)


def _spot_lives(clock: _Clock) -> Iterator[tuple[int, int, Life]]:
    for day in range(DAYS + 1):
        for number, (comes, stays) in enumerate(((9, 5.5), (10, 3.25), (14, 6))):
            joins = clock.minute(day, comes)
            if 0 <= joins < END:
                yield day, number, (joins, min(END, joins + 60 * stays))


def _batch(on: Node) -> Pod:
    """Work on a spot node from soon after it joins; its pod object outlives the node by some minutes."""
    begins, gone = on.life[0] + 4, on.life[1] + 5
    name = f"render-{on.name}"
    return _pod("render", name, on, [0], (begins, gone), _flat("0.88"), (("Job", name),), running=begins + 2)


def _node(name: str, model: str, pool: str, life: Life, *, slices: int = 1, capacity_type: str = "on-demand") -> Node:
    geometry = mig_single(model, "1g.10gb", slices) if slices > 1 else whole(model)
    labels = {
        "karpenter_sh_nodepool": pool,
        "karpenter_sh_capacity_type": capacity_type,
        "topology_kubernetes_io_zone": "eu-central-1a",
    }
    return node(name, model, geometry, life=life, labels=labels)


def _pod(
    namespace: str, name: str, on: Node, places: Sequence[int], life: Life, use: Use, owners: Owners,
    *, running: Minutes | None = None, finished: Minutes | None = None,
) -> Pod:  # fmt: skip
    return Pod(
        name, on, places, use,
        requests={"main": {GPU: len(places)}},
        namespace=namespace,
        start=life[0],
        running=running,
        finished=finished,
        deleted=life[1],
        owners=owners,
    )  # fmt: skip


def _flat(use: str) -> Use:
    return ((0, use),)
