"""Lifetimes of pods, nodes and geometries."""

from collections.abc import Iterator, Sequence

from devstack.fleet.builders import mig_mixed, mig_single, node, whole
from devstack.fleet.scenario import Exporter, Node, Pod, Scenario
from devstack.fleet.scenarios.sharing import flat, request

ALWAYS = (-1e6, 1e6)


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _pods()
    yield from _phases()
    yield from _nodes()
    yield from _geometries()


def mixed_lifetimes(name: str, hours: Sequence[int] = (0, 1)) -> Scenario:
    """Pods with all kinds of lifetimes on one node. The scenarios of outages are built on it."""
    n = node("n1", "h100", whole("h100"))
    return Scenario(
        name,
        [n],
        [
            Pod("always", n, [0], flat("0.8")),
            Pod("inside", n, [1], flat("0.6"), start=12, running=14, deleted=41),
            Pod("short", n, [2], flat("0.5"), start=20.5, deleted=21.7),
            Pod("before", n, [3], flat("0.4"), start=-40, deleted=9.5),
            Pod("after", n, [4], flat("0.7"), start=52, running=55, deleted=100),
            Pod("again", n, [5], flat("0.3"), uid="first", deleted=22),
            Pod("again", n, [6], flat("0.9"), uid="second", start=27),
            Pod("next", n, [1], flat("0.2"), start=41, deleted=58),
        ],
        hours=hours,
    )


def _pods() -> Iterator[Scenario]:
    yield mixed_lifetimes("pod-lifetimes")
    n = node("n1", "a10g-one", whole("a10g-one"))
    # A GPU that passes from pod to pod: no pod is billed twice, and the total does not exceed the GPU.
    successive = [Pod(f"p{i}", n, [0], flat("0.5"), start=-3 + i * 7.3, deleted=-3 + (i + 1) * 7.3) for i in range(9)]
    yield Scenario("gpu-passed-on", [n], successive)
    yield Scenario(
        "pod-over-hours",
        [n],
        [Pod("p", n, [0], flat("0.5"), start=-50, running=-44, deleted=115)],
        hours=(-1, 0, 1),
    )
    reused = node("n1", "a10g", whole("a10g"))
    pods = [
        Pod("p", reused, [0], flat("0.9"), uid="first", start=-30, finished=20, deleted=22),
        Pod("p", reused, [1], flat("0.2"), uid="second", start=24, running=30),
    ]
    yield Scenario("name-on-another-gpu", [reused], pods, dcgm=Exporter(labels_linger=2))
    changing = Pod("p", reused, [0], (((-1e6, "0.1"), (20, "0.9"), (40, "0.3"))), start=10, deleted=50)
    yield Scenario("use-that-changes", [reused], [changing])


def _phases() -> Iterator[Scenario]:
    n = node("n1", "h100", whole("h100"))
    yield Scenario(
        "phases",
        [n],
        [
            Pod("unscheduled", None),
            Pod("pulling", n, [0], start=-5, never_runs=True),
            Pod("pulled-late", n, [1], flat("0.8"), start=5, running=25),
            Pod("succeeded", n, [2], flat("0.8"), start=-60, finished=-20),
            Pod("failed", n, [3], flat("0.8"), start=-60, finished=33, phase_at_end="Failed"),
            Pod("idle", n, [4], flat("0")),
        ],
    )


def _nodes() -> Iterator[Scenario]:
    stays = node("n1", "a10g", whole("a10g"))
    joins = node("n2", "a10g", whole("a10g", lifetime=(16, 1e6)), lifetime=(10, 1e6), labels_from=19)
    leaves = node("n3", "a10g", whole("a10g"), lifetime=(-1e6, 35))
    yield Scenario(
        "nodes-join-and-leave",
        [stays, joins, leaves],
        [
            Pod("on-new", joins, [0], flat("0.6"), start=17, running=20),
            Pod("left-behind", leaves, [0], flat("0.6"), deleted=48),
            Pod("stays", stays, [0], flat("0.6")),
        ],
    )
    old = node("n1", "a10g-one", whole("a10g-one"), lifetime=(-1e6, 24), provider_id="aws:///us-west-2a/i-old")
    new = node(
        "n1",
        "a10g-one",
        whole("a10g-one", lifetime=(30, 1e6)),
        lifetime=(28, 1e6),
        provider_id="aws:///us-west-2a/i-new",
    )
    yield Scenario(
        "node-replaced-under-its-name",
        [old, new],
        [Pod("first", old, [0], flat("0.4"), deleted=24), Pod("second", new, [0], flat("0.9"), start=31)],
    )
    spot = node("n1", "a10g-one", whole("a10g-one"), lifetime=(-30, 25), labels={"karpenter_sh_capacity_type": "spot"})
    back = node("n2", "a10g-one", whole("a10g-one", lifetime=(43, 1e6)), lifetime=(40, 1e6))
    yield Scenario(
        "pool-to-zero-and-back",
        [spot, back],
        [
            Pod("reclaimed", spot, [0], flat("0.7"), start=-20, deleted=31),
            Pod("later", back, [0], flat("0.7"), start=45),
        ],
        hours=(0, 1),
    )
    plain = Node("cpu", "m7g.large", 0, "", ())
    yield Scenario("no-gpu-nodes", [plain], [Pod("unscheduled", None)])


def _geometries() -> Iterator[Scenario]:
    ones = mig_single("h100-one", "1g.10gb", 7, lifetime=(-1e6, 25))
    threes = mig_single("h100-one", "3g.40gb", 2, lifetime=(29, 1e6))
    single = node("n1", "h100-one", (ones, threes))
    yield Scenario(
        "mig-single-changed",
        [single],
        [
            Pod("small", single, [0], flat("0.5"), deleted=22),
            Pod("large", single, [1], flat("0.5"), start=31),
        ],
    )
    before = mig_mixed("a30", [["1g.6gb"] * 4, ["2g.12gb", "2g.12gb"]], lifetime=(-1e6, 30))
    after = mig_mixed("a30", [["4g.24gb"], []], lifetime=(33, 1e6))
    mixed = node("n1", "a30", (before, after))
    yield Scenario(
        "mig-mixed-changed",
        [mixed],
        [
            Pod("quarter", mixed, [0], flat("0.5"), requests=request("nvidia_com_mig_1g_6gb"), deleted=28),
            Pod("half", mixed, [4], flat("0.6"), requests=request("nvidia_com_mig_2g_12gb"), deleted=29),
            Pod("four", mixed, [0], flat("0.7"), requests=request("nvidia_com_mig_4g_24gb"), start=35),
        ],
    )
