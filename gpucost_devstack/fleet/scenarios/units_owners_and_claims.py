"""Business units, owners, ResourceClaims, and a cluster whose metrics contradict each other."""

from collections.abc import Iterator
from fractions import Fraction

from gpucost_devstack.fleet.builders import gpu_node, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import GPU, Exporter, Geometry, Pod, Scenario
from gpucost_devstack.fleet.scenarios.sharing import constant_use, container_request
from gpucost_devstack.fleet.scraping import Scraping


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield worked_example()
    yield from _business_unit_scenarios()
    yield from _owner_scenarios()
    yield from _moved_namespace_scenarios()
    yield from _resource_claim_scenarios()
    n = gpu_node("n1", "a10g-one", whole_gpus_geometry("a10g-one"))
    # Three pods hold the only GPU. The metrics contradict each other, and the residual shows it.
    yield Scenario(
        "overcommitted-gpu",
        [n],
        [
            Pod(f"p{i}", n, [0] if i == 0 else [], constant_use("0.5"), requests=container_request(GPU))
            for i in range(3)
        ],
        allows_residual=True,
        utilization_source_by_pod={"p1": "none", "p2": "none"},
    )


def worked_example() -> Scenario:
    """The cluster of `docs/explanation/cost-model.md`."""
    n = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"))
    train = Pod(
        "train", n, [0, 1], use_by_device=[constant_use("0.8"), constant_use("0.2")], requests=container_request(GPU, 2)
    )
    chat = Pod("chat", n, [2], constant_use("0.5"), bound_at=30, running_at=36)
    batch = Pod("batch", n, [3], constant_use("0.9"), bound_at=-30, finished_at=20)
    silent = Exporter(Scraping("dcgm-exporter", "", gaps=[(10, 20)]))
    return Scenario("worked-example", [n], [train, chat, batch], dcgm=silent)


def _business_unit_scenarios() -> Iterator[Scenario]:
    n = gpu_node("n1", "h100", whole_gpus_geometry("h100"))
    pods = [
        Pod("by-name", n, [0], constant_use("0.5"), namespace="research-nlp"),
        Pod("by-namespace-label", n, [1], constant_use("0.5"), namespace="chat"),
        Pod("by-pod-label", n, [2], constant_use("0.5"), namespace="common", labels={"label_team": "vision"}),
        Pod(
            "by-pod-label-gone",
            n,
            [3],
            constant_use("0.5"),
            namespace="common",
            labels={"label_team": "vision"},
            deleted_at=20,
        ),
        Pod("unassigned", n, [4], constant_use("0.5"), namespace="alone"),
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
        business_unit_by_pod={
            "by-name": "research",
            "by-namespace-label": "assistant",
            "by-pod-label": "vision",
            "by-pod-label-gone": "vision",
            "unassigned": "alone",
        },
    )


def _moved_namespace_scenarios() -> Iterator[Scenario]:
    """A namespace that moves to another business unit from one hour to the next."""
    n = gpu_node("n1", "h100", whole_gpus_geometry("h100"))
    moving = [
        Pod("p", n, [0], constant_use("0.5"), namespace="moving"),
        Pod("q", n, [1], constant_use("0.5"), namespace="staying"),
    ]
    at = "{base}"
    yield Scenario(
        "namespace-moved-before",
        [n],
        moving,
        hours=(-1,),
        settings=_MOVED_NAMESPACE_SETTINGS.format(at=at),
        business_unit_by_pod={"p": "old", "q": "old"},
    )
    yield Scenario(
        "namespace-moved-after",
        [n],
        moving,
        settings=_MOVED_NAMESPACE_SETTINGS.format(at=at),
        business_unit_by_pod={"p": "new", "q": "old"},
    )


_MOVED_NAMESPACE_SETTINGS = """business_units:
  - {{name: old, namespaces: [moving, staying]}}
  - {{name: old, namespaces: [staying], from: "{at}"}}
  - {{name: new, namespaces: [moving], from: "{at}"}}
"""


def _resource_claim_scenarios() -> Iterator[Scenario]:
    """GPUs held through DRA claims, which appear in no node's capacity and in no request."""
    empty = Geometry(
        {}, {"gpu_nvidia_com": Fraction(1), GPU: Fraction(1)}, whole_gpus_geometry("h100").devices, serves_claims=True
    )
    n = gpu_node("n1", "h100", empty)
    requests = {"main": {"gpu_nvidia_com": 2}}
    pods = [
        Pod("claims", n, [0, 1], constant_use("0.5"), requests=requests, claims=["c1"]),
        Pod("comes", n, [2, 3], constant_use("0.7"), requests=requests, claims=["c2"], bound_at=20, deleted_at=50),
    ]
    yield Scenario("claims", [n], pods)
    single = {"main": {"gpu_nvidia_com": 1}}
    sharers = [
        Pod("first", n, [0], constant_use("0.3"), requests=single, claims=["shared"]),
        Pod("second", n, [0], constant_use("0.2"), requests=single, claims=["shared"]),
        Pod("third", n, [0], constant_use("0.1"), requests=single, claims=["shared"], bound_at=30),
        Pod("owner", n, [1, 2], constant_use("0.5"), requests=requests, claims=["pair"]),
        Pod("guest", n, [1, 2], constant_use("0.25"), requests=requests, claims=["pair"], bound_at=20, deleted_at=40),
        Pod("elsewhere", n, [3], constant_use("0.5"), requests=single, claims=["shared"], namespace="other"),
    ]
    yield Scenario("claims-shared", [n], sharers)
    yield Scenario(
        "claims-of-business-units",
        [n],
        [
            Pod(
                "web",
                n,
                [0],
                constant_use("0.5"),
                requests=single,
                claims=["c1"],
                labels={"label_team": "vision"},
                owners=(("ReplicaSet", "web-6f7d"), ("Deployment", "web")),
            ),
            Pod(
                "ended",
                n,
                [1],
                constant_use("0.5"),
                requests=single,
                claims=["c2"],
                labels={"label_team": "vision"},
                owners=(("ReplicaSet", "old-55"), ("Deployment", "old")),
                deleted_at=30,
            ),
            Pod("by-namespace", n, [2], constant_use("0.5"), requests=single, claims=["c3"], namespace="chat"),
            Pod("other", n, [3], constant_use("0.5"), requests=single, claims=["c4"]),
        ],
        namespace_labels={"chat": {"label_cost_center": "cc-7"}},
        settings=(
            "business_units:\n"
            "  - {name: assistant, namespace_labels: {cost-center: cc-7}}\n"
            "  - {name: vision, pod_labels: {team: vision}}\n"
        ),
        business_unit_by_pod={"web": "vision", "ended": "vision", "by-namespace": "assistant", "other": "team"},
    )
    extended = [
        Pod("plain", n, [0], constant_use("0.5"), is_extended=True),
        Pod("two", n, [1, 2], constant_use("0.4"), requests=container_request(GPU, 2), is_extended=True),
        Pod(f"long-{'x' * 55}", n, [3], constant_use("0.6"), is_extended=True),
        Pod("leaves", n, [4], constant_use("0.8"), is_extended=True, deleted_at=30),
        Pod("claims", n, [5], constant_use("0.7"), requests=single, claims=["c1"]),
    ]
    yield Scenario("claims-of-extended-resources", [n], extended)


def _owner_scenarios() -> Iterator[Scenario]:
    n = gpu_node("n1", "h100", whole_gpus_geometry("h100"))
    owned = {
        "deployment": (("ReplicaSet", "web-6f7d"), ("Deployment", "web")),
        "cron": (("Job", "nightly-1"), ("CronJob", "nightly")),
        "stateful": (("StatefulSet", "db"),),
        "torch": (("PyTorchJob", "train"),),
        "ray": (("RayCluster", "ray"),),
        "job": (("Job", "once"),),
    }
    pods = [Pod(name, n, [i], constant_use("0.5"), owners=owners) for i, (name, owners) in enumerate(owned.items())]
    pods += [
        Pod(
            "gone",
            n,
            [6],
            constant_use("0.5"),
            owners=(("ReplicaSet", "old-55"), ("Deployment", "old")),
            bound_at=5,
            deleted_at=25,
        ),
        Pod("bare", n, [7], constant_use("0.5")),
    ]
    yield Scenario("owners", [n], pods)
