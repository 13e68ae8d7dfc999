"""Lifetimes of pods, nodes and geometries."""

from collections.abc import Iterator, Sequence

from gpucost_devstack.fleet.builders import gpu_node, mig_mixed_geometry, mig_single_geometry, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import Exporter, Node, Pod, Scenario
from gpucost_devstack.fleet.scenarios.sharing import constant_use, container_request

ALWAYS = (-1e6, 1e6)


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _pod_lifetime_scenarios()
    yield from _pod_phase_scenarios()
    yield from _node_lifetime_scenarios()
    yield from _geometry_change_scenarios()


def mixed_lifetimes(name: str, hours: Sequence[int] = (0, 1)) -> Scenario:
    """Pods with all kinds of lifetimes on one node. The scenarios of outages are built on it."""
    n = gpu_node("n1", "h100", whole_gpus_geometry("h100"))
    return Scenario(
        name,
        [n],
        [
            Pod("always", n, [0], constant_use("0.8")),
            Pod("inside", n, [1], constant_use("0.6"), bound_at=12, running_at=14, deleted_at=41),
            Pod("short", n, [2], constant_use("0.5"), bound_at=20.5, deleted_at=21.7),
            Pod("before", n, [3], constant_use("0.4"), bound_at=-40, deleted_at=9.5),
            Pod("after", n, [4], constant_use("0.7"), bound_at=52, running_at=55, deleted_at=100),
            Pod("again", n, [5], constant_use("0.3"), uid="first", deleted_at=22),
            Pod("again", n, [6], constant_use("0.9"), uid="second", bound_at=27),
            Pod("next", n, [1], constant_use("0.2"), bound_at=41, deleted_at=58),
        ],
        hours=hours,
    )


def _pod_lifetime_scenarios() -> Iterator[Scenario]:
    yield mixed_lifetimes("pod-lifetimes")
    n = gpu_node("n1", "a10g-one", whole_gpus_geometry("a10g-one"))
    # A GPU that passes from pod to pod: no pod is billed twice, and the total does not exceed the GPU.
    successive = [
        Pod(f"p{i}", n, [0], constant_use("0.5"), bound_at=-3 + i * 7.3, deleted_at=-3 + (i + 1) * 7.3)
        for i in range(9)
    ]
    yield Scenario("gpu-passed-on", [n], successive)
    yield Scenario(
        "pod-over-hours",
        [n],
        [Pod("p", n, [0], constant_use("0.5"), bound_at=-50, running_at=-44, deleted_at=115)],
        hours=(-1, 0, 1),
    )
    reused = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"))
    pods = [
        Pod("p", reused, [0], constant_use("0.9"), uid="first", bound_at=-30, finished_at=20, deleted_at=22),
        Pod("p", reused, [1], constant_use("0.2"), uid="second", bound_at=24, running_at=30),
    ]
    yield Scenario("name-on-another-gpu", [reused], pods, dcgm=Exporter(label_linger_minutes=2))
    changing = Pod("p", reused, [0], (((-1e6, "0.1"), (20, "0.9"), (40, "0.3"))), bound_at=10, deleted_at=50)
    yield Scenario("use-that-changes", [reused], [changing])


def _pod_phase_scenarios() -> Iterator[Scenario]:
    n = gpu_node("n1", "h100", whole_gpus_geometry("h100"))
    yield Scenario(
        "phases",
        [n],
        [
            Pod("unscheduled", None),
            Pod("pulling", n, [0], bound_at=-5, never_starts=True),
            Pod("pulled-late", n, [1], constant_use("0.8"), bound_at=5, running_at=25),
            Pod("succeeded", n, [2], constant_use("0.8"), bound_at=-60, finished_at=-20),
            Pod("failed", n, [3], constant_use("0.8"), bound_at=-60, finished_at=33, phase_at_end="Failed"),
            Pod("idle", n, [4], constant_use("0")),
        ],
    )


def _node_lifetime_scenarios() -> Iterator[Scenario]:
    stays = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"))
    joins = gpu_node("n2", "a10g", whole_gpus_geometry("a10g", lifetime=(16, 1e6)), lifetime=(10, 1e6), labels_from=19)
    leaves = gpu_node("n3", "a10g", whole_gpus_geometry("a10g"), lifetime=(-1e6, 35))
    yield Scenario(
        "nodes-join-and-leave",
        [stays, joins, leaves],
        [
            Pod("on-new", joins, [0], constant_use("0.6"), bound_at=17, running_at=20),
            Pod("left-behind", leaves, [0], constant_use("0.6"), deleted_at=48),
            Pod("stays", stays, [0], constant_use("0.6")),
        ],
    )
    old = gpu_node(
        "n1", "a10g-one", whole_gpus_geometry("a10g-one"), lifetime=(-1e6, 24), provider_id="aws:///us-west-2a/i-old"
    )
    new = gpu_node(
        "n1",
        "a10g-one",
        whole_gpus_geometry("a10g-one", lifetime=(30, 1e6)),
        lifetime=(28, 1e6),
        provider_id="aws:///us-west-2a/i-new",
    )
    yield Scenario(
        "node-replaced-under-its-name",
        [old, new],
        [
            Pod("first", old, [0], constant_use("0.4"), deleted_at=24),
            Pod("second", new, [0], constant_use("0.9"), bound_at=31),
        ],
    )
    spot = gpu_node(
        "n1",
        "a10g-one",
        whole_gpus_geometry("a10g-one"),
        lifetime=(-30, 25),
        labels={"karpenter_sh_capacity_type": "spot"},
    )
    back = gpu_node("n2", "a10g-one", whole_gpus_geometry("a10g-one", lifetime=(43, 1e6)), lifetime=(40, 1e6))
    yield Scenario(
        "pool-to-zero-and-back",
        [spot, back],
        [
            Pod("reclaimed", spot, [0], constant_use("0.7"), bound_at=-20, deleted_at=31),
            Pod("later", back, [0], constant_use("0.7"), bound_at=45),
        ],
        hours=(0, 1),
    )
    plain = Node("cpu", "m7g.large", 0, "", ())
    yield Scenario("no-gpu-nodes", [plain], [Pod("unscheduled", None)])


def _geometry_change_scenarios() -> Iterator[Scenario]:
    ones = mig_single_geometry("h100-one", "1g.10gb", 7, lifetime=(-1e6, 25))
    threes = mig_single_geometry("h100-one", "3g.40gb", 2, lifetime=(29, 1e6))
    single = gpu_node("n1", "h100-one", (ones, threes))
    yield Scenario(
        "mig-single-changed",
        [single],
        [
            Pod("small", single, [0], constant_use("0.5"), deleted_at=22),
            Pod("large", single, [1], constant_use("0.5"), bound_at=31),
        ],
    )
    before = mig_mixed_geometry("a30", [["1g.6gb"] * 4, ["2g.12gb", "2g.12gb"]], lifetime=(-1e6, 30))
    after = mig_mixed_geometry("a30", [["4g.24gb"], []], lifetime=(33, 1e6))
    mixed = gpu_node("n1", "a30", (before, after))
    yield Scenario(
        "mig-mixed-changed",
        [mixed],
        [
            Pod(
                "quarter",
                mixed,
                [0],
                constant_use("0.5"),
                requests=container_request("nvidia_com_mig_1g_6gb"),
                deleted_at=28,
            ),
            Pod(
                "half",
                mixed,
                [4],
                constant_use("0.6"),
                requests=container_request("nvidia_com_mig_2g_12gb"),
                deleted_at=29,
            ),
            Pod(
                "four",
                mixed,
                [0],
                constant_use("0.7"),
                requests=container_request("nvidia_com_mig_4g_24gb"),
                bound_at=35,
            ),
        ],
    )
