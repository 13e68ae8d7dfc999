"""Nodes that leave with pods bound to them, become unhealthy, are replaced, or change during a gap in scrapes."""

from collections.abc import Iterator
from dataclasses import replace

from gpucost_devstack.fleet.builders import gpu_node, mig_single_geometry, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import (
    FOREVER,
    GPU,
    Exporter,
    Geometry,
    Interval,
    KubeStateMetrics,
    Node,
    Pod,
    Scenario,
)
from gpucost_devstack.fleet.scenarios.outages import with_scrape_gap
from gpucost_devstack.fleet.scenarios.sharing import constant_use, container_request


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _reclaimed_spot_node_scenarios()
    yield from _short_lived_node_scenarios()
    yield from _unhealthy_device_scenarios()
    yield from _node_change_in_gap_scenarios()
    yield from _late_node_label_scenarios()
    yield from _unlisted_instance_type_scenarios()


def _single_gpu_node(name: str, lifetime: Interval = FOREVER, ready: float | None = None) -> Node:
    begins = lifetime[0] if ready is None else ready
    return gpu_node(name, "a10g-one", whole_gpus_geometry("a10g-one", lifetime=(begins, 1e6)), lifetime=lifetime)


def _reclaimed_spot_node_scenarios() -> Iterator[Scenario]:
    """Spot nodes are reclaimed. Their pod objects remain until they are deleted, past the hour's end and longer."""
    stays = _single_gpu_node("n0")
    spot = _single_gpu_node("n1", (-1e6, 57))
    left = Pod("left", spot, [0], constant_use("0.7"), deleted_at=64)
    yield Scenario("left-behind-over-the-hour", [stays, spot], [left], hours=(0, 1))
    long_gone = _single_gpu_node("n1", (-1e6, -50))
    forgotten = Pod("forgotten", long_gone, [0], constant_use("0.7"))
    yield Scenario("left-behind-for-hours", [stays, long_gone], [forgotten], hours=(0, 1))
    slices = gpu_node("n1", "h100-one", mig_single_geometry("h100-one", "1g.10gb", 7), lifetime=(-1e6, 20))
    small = Pod("small", slices, [0], constant_use("0.7"), deleted_at=40)
    yield Scenario("left-behind-slices", [stays, slices], [small])


def _short_lived_node_scenarios() -> Iterator[Scenario]:
    """Nodes that exist for minutes."""
    stays, within = _single_gpu_node("n0"), _single_gpu_node("n1", (12, 41), ready=15)
    yield Scenario(
        "node-within-the-hour",
        [stays, within],
        [Pod("p", within, [0], constant_use("0.5"), bound_at=16, deleted_at=39)],
    )
    brief = _single_gpu_node("n1", (20.3, 22.8))
    yield Scenario("node-for-two-minutes", [stays, brief])
    many = [_single_gpu_node(f"wave{i}", (5 * i, 5 * i + 30), ready=5 * i + 2) for i in range(6)]
    pods = [
        Pod(f"p{i}", wave_node, [0], constant_use("0.5"), bound_at=5 * i + 3, deleted_at=5 * i + 35)
        for i, wave_node in enumerate(many)
    ]
    yield Scenario("nodes-in-waves", [stays, *many], pods)
    replaced = [
        replace(_single_gpu_node("n1", lifetime), provider_id=f"aws:///eu-central-1a/i-{number}")
        for number, lifetime in enumerate([(-1e6, 20), (23, 40), (44, 1e6)])
    ]
    starts = (-70, 24, 46)  # the pods of nodes that are gone are never deleted
    pods = [Pod(f"p{i}", version, [0], constant_use("0.5"), bound_at=starts[i]) for i, version in enumerate(replaced)]
    yield Scenario("node-replaced-twice", replaced, pods)


def _unhealthy_device_scenarios() -> Iterator[Scenario]:
    """The units that a node advertises decrease and recover."""

    def offers(interval: Interval, healthy: int = 4) -> Geometry:
        return whole_gpus_geometry("a10g", lifetime=interval, allocatable={GPU: healthy})

    unhealthy = gpu_node("n1", "a10g", (offers((-1e6, 20)), offers((20, 45), 3), offers((45, 1e6))))
    pods = [Pod("p", unhealthy, [0], constant_use("0.5")), Pod("q", unhealthy, [1], constant_use("0.5"), bound_at=25)]
    yield Scenario("unhealthy-for-a-while", [unhealthy], pods)
    full = gpu_node("n1", "a10g", whole_gpus_geometry("a10g", allocatable={GPU: 3}))
    yield Scenario("unhealthy-and-held", [full], [Pod(f"p{i}", full, [i], constant_use("0.5")) for i in range(4)])
    # The device plugin crashes: nothing is advertised for a while, and running pods continue.
    crashed = gpu_node(
        "n1",
        "a10g",
        (whole_gpus_geometry("a10g", lifetime=(-1e6, 20)), whole_gpus_geometry("a10g", lifetime=(28, 1e6))),
    )
    yield Scenario(
        "plugin-crashed",
        [crashed],
        [Pod("p", crashed, [0], constant_use("0.5"))],
        dcgm=Exporter(intervals_without_devices=[(20, 28)]),
    )
    none = gpu_node("n1", "a10g", (whole_gpus_geometry("a10g", lifetime=(-1e6, -1e5)),))
    yield Scenario("never-advertised", [none, _single_gpu_node("n0")])


def _node_change_in_gap_scenarios() -> Iterator[Scenario]:
    """Nodes that change during a gap in scrapes."""
    gap = [(20, 30)]
    stays, leaves, joins = (
        _single_gpu_node("n0"),
        _single_gpu_node("n1", (-1e6, 24)),
        _single_gpu_node("n2", (25, 1e6), ready=26),
    )
    pods = [
        Pod("p", leaves, [0], constant_use("0.5"), deleted_at=24),
        Pod("q", joins, [0], constant_use("0.5"), bound_at=27),
    ]
    moving = Scenario("nodes-change-in-a-gap", [stays, leaves, joins], pods)
    yield with_scrape_gap(moving, "allocation", gap)
    with_times = with_scrape_gap(replace(moving, name="nodes-change-in-a-gap-with-times"), "allocation", gap)
    yield replace(with_times, ksm=[replace(instance, pod_times=True) for instance in with_times.ksm])
    old = replace(_single_gpu_node("n1", (-1e6, 22)), provider_id="aws:///eu-central-1a/i-old")
    new = replace(_single_gpu_node("n1", (27, 1e6)), provider_id="aws:///eu-central-1a/i-new")
    replaced = [
        Pod("p", old, [0], constant_use("0.5"), deleted_at=22),
        Pod("q", new, [0], constant_use("0.9"), bound_at=28),
    ]
    yield with_scrape_gap(Scenario("node-replaced-in-a-gap", [old, new], replaced), "both", gap)
    # A GPU passes to another pod in a gap. However it is split, the total must not exceed the GPU.
    successive = [
        Pod("p", stays, [0], constant_use("0.5"), deleted_at=23),
        Pod("q", stays, [0], constant_use("0.5"), bound_at=27),
    ]
    yield with_scrape_gap(Scenario("gpu-passed-on-in-a-gap", [stays], successive), "allocation", gap)
    yield with_scrape_gap(Scenario("gpu-passed-on-in-a-short-gap", [stays], successive), "allocation", [(22, 26)])


def _late_node_label_scenarios() -> Iterator[Scenario]:
    """Nodes on which the labels of GPU Feature Discovery come late."""
    sliced = mig_single_geometry("h100-one", "1g.10gb", 7, lifetime=(14, 1e6))
    late = gpu_node("n1", "h100-one", sliced, lifetime=(8, 1e6), labels_from=25)
    yield Scenario("slices-before-their-labels", [late], [Pod("p", late, [2], constant_use("0.5"), bound_at=16)])
    eight = gpu_node("n1", "h100", whole_gpus_geometry("h100", lifetime=(20, 1e6)), lifetime=(3, 1e6), labels_from=22)
    pods = [
        Pod(
            "p",
            eight,
            list(range(8)),
            constant_use("0.9"),
            requests=container_request(GPU, 8),
            bound_at=21,
            running_at=33,
        )
    ]
    yield Scenario("booting-long", [eight], pods, ksm=[KubeStateMetrics(node_labels=True)])


def _unlisted_instance_type_scenarios() -> Iterator[Scenario]:
    """An instance type that is newer than the catalog. Before a node is ready, only the settings show its GPUs."""
    boots = gpu_node(
        "n1", "h100", whole_gpus_geometry("h100", lifetime=(20, 1e6)), lifetime=(5, 1e6), instance_type="p9.48xlarge"
    )
    never_ready = gpu_node(
        "n2",
        "h100",
        whole_gpus_geometry("h100", lifetime=(-1e6, -1e5)),
        lifetime=(30, 1e6),
        instance_type="p9.48xlarge",
    )
    yield Scenario(
        "unlisted-instance-type",
        [boots, never_ready],
        [Pod("p", boots, [0], constant_use("0.5"), bound_at=25)],
        settings="instance_types: [{name: p9.48xlarge, gpus: 8}]\n",
    )
