"""Business units, owners, ResourceClaims, and a cluster whose metrics contradict each other."""

from collections.abc import Iterator
from fractions import Fraction

from devstack.fleet.builders import node, whole
from devstack.fleet.scenario import GPU, Exporter, Geometry, Pod, Scenario
from devstack.fleet.scenarios.sharing import flat, request
from devstack.fleet.scraping import Scraping


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield worked_example()
    yield from _units()
    yield from _owners()
    yield from _moved()
    yield from _claims()
    n = node("n1", "a10g-one", whole("a10g-one"))
    # Three pods hold the only GPU. The metrics contradict each other, and the residual shows it.
    yield Scenario(
        "overcommitted-gpu",
        [n],
        [Pod(f"p{i}", n, [0] if i == 0 else [], flat("0.5"), requests=request(GPU)) for i in range(3)],
        residual=True,
        utilization_sources={"p1": "none", "p2": "none"},
    )


def worked_example() -> Scenario:
    """The cluster of `docs/cost-model.md`."""
    n = node("n1", "a10g", whole("a10g"))
    train = Pod("train", n, [0, 1], uses=[flat("0.8"), flat("0.2")], requests=request(GPU, 2))
    chat = Pod("chat", n, [2], flat("0.5"), start=30, running=36)
    batch = Pod("batch", n, [3], flat("0.9"), start=-30, finished=20)
    silent = Exporter(Scraping("dcgm-exporter", "", gaps=[(10, 20)]))
    return Scenario("worked-example", [n], [train, chat, batch], dcgm=silent)


def _units() -> Iterator[Scenario]:
    n = node("n1", "h100", whole("h100"))
    pods = [
        Pod("by-name", n, [0], flat("0.5"), namespace="research-nlp"),
        Pod("by-namespace-label", n, [1], flat("0.5"), namespace="chat"),
        Pod("by-pod-label", n, [2], flat("0.5"), namespace="common", labels={"label_team": "vision"}),
        Pod("by-pod-label-gone", n, [3], flat("0.5"), namespace="common", labels={"label_team": "vision"}, deleted=20),
        Pod("unassigned", n, [4], flat("0.5"), namespace="alone"),
    ]
    yield Scenario(
        "business-units",
        [n],
        pods,
        namespace_labels={"chat": {"label_cost_center": "cc-7"}},
        settings=(
            "business_units:\n"
            "  - {name: research, namespaces: ['research-*']}\n"
            "  - {name: assistant, namespace_labels: {cost-center: cc-7}}\n"
            "  - {name: vision, pod_labels: {team: vision}}\n"
        ),
        business_units={"by-name": "research", "by-namespace-label": "assistant", "by-pod-label": "vision",
               "by-pod-label-gone": "vision", "unassigned": "alone"},
    )  # fmt: skip


def _moved() -> Iterator[Scenario]:
    """A namespace that moves to another business unit from one hour to the next."""
    n = node("n1", "h100", whole("h100"))
    moving = [Pod("p", n, [0], flat("0.5"), namespace="moving"), Pod("q", n, [1], flat("0.5"), namespace="staying")]
    at = "{base}"
    yield Scenario(
        "namespace-moved-before",
        [n],
        moving,
        hours=(-1,),
        settings=_MOVED.format(at=at),
        business_units={"p": "old", "q": "old"},
    )
    yield Scenario(
        "namespace-moved-after", [n], moving, settings=_MOVED.format(at=at), business_units={"p": "new", "q": "old"}
    )


_MOVED = """business_units:
  - {{name: old, namespaces: [moving, staying]}}
  - {{name: old, namespaces: [staying], from: "{at}"}}
  - {{name: new, namespaces: [moving], from: "{at}"}}
"""


def _claims() -> Iterator[Scenario]:
    """GPUs held through DRA claims, which appear in no node's capacity and in no request."""
    empty = Geometry({}, {"gpu_nvidia_com": Fraction(1)}, whole("h100").devices)
    n = node("n1", "h100", empty)
    requests = {"main": {"gpu_nvidia_com": 2}}
    pods = [
        Pod("claims", n, [0, 1], flat("0.5"), requests=requests, claims=["c1"]),
        Pod("comes", n, [2, 3], flat("0.7"), requests=requests, claims=["c2"], start=20, deleted=50),
    ]
    yield Scenario("claims", [n], pods)


def _owners() -> Iterator[Scenario]:
    n = node("n1", "h100", whole("h100"))
    owned = {
        "deployment": (("ReplicaSet", "web-6f7d"), ("Deployment", "web")),
        "cron": (("Job", "nightly-1"), ("CronJob", "nightly")),
        "stateful": (("StatefulSet", "db"),),
        "torch": (("PyTorchJob", "train"),),
        "ray": (("RayCluster", "ray"),),
        "job": (("Job", "once"),),
    }
    pods = [Pod(name, n, [i], flat("0.5"), owners=owners) for i, (name, owners) in enumerate(owned.items())]
    pods += [
        Pod("gone", n, [6], flat("0.5"), owners=(("ReplicaSet", "old-55"), ("Deployment", "old")), start=5, deleted=25),
        Pod("bare", n, [7], flat("0.5")),
    ]
    yield Scenario("owners", [n], pods)
