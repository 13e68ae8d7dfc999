"""Energy: counters and power of whole, shared and divided GPUs, counters that start again, and gaps."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpucost_devstack.fleet.builders import gpu_node, mig_mixed_geometry, time_sliced_geometry, whole_gpus_geometry
from gpucost_devstack.fleet.hardware import resource_of_profile
from gpucost_devstack.fleet.power import ENERGY_COUNTER, POWER_GAUGE
from gpucost_devstack.fleet.scenario import FOREVER, GPU, Exporter, Interval, Node, Pod, Scenario
from gpucost_devstack.fleet.scenarios.sharing import constant_use, container_request
from gpucost_devstack.fleet.scraping import Scraping

COUNTER = Exporter(energy_metrics=(ENERGY_COUNTER, POWER_GAUGE), targets_have_node=True)
POWER = Exporter(energy_metrics=(POWER_GAUGE,))


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    node = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"), labels={"topology_kubernetes_io_zone": "eu-west-1a"})
    pods = _whole_gpu_pods(node)
    yield Scenario("energy", [node], pods, dcgm=COUNTER, hours=(0, 1))
    yield Scenario("energy-idle", [node], dcgm=COUNTER)
    yield Scenario("energy-off", [node], pods, dcgm=COUNTER, settings="energy: {enabled: false}\n")
    yield Scenario("energy-driver-loaded", [node], pods, dcgm=replace(COUNTER, driver_loads=(24.5,)))
    yield Scenario("energy-driver-loaded-twice", [node], pods[:1], dcgm=replace(COUNTER, driver_loads=(9.5, 10.5)))
    yield Scenario("energy-power", [node], pods, dcgm=POWER, hours=(0, 1))
    for name, exporter in {"counter": COUNTER, "power": POWER}.items():
        for gap in ((20, 32), (-3, 4), (56, 63)):
            yield Scenario(f"energy-gap-{gap[0]}-{name}", [node], pods[:2], dcgm=_with_gap(exporter, gap), hours=(0, 1))
    yield Scenario(
        "energy-gap-driver-loaded", [node], pods[:2], dcgm=replace(_with_gap(COUNTER, (20, 32)), driver_loads=(26,))
    )
    yield Scenario("energy-scraped-at-17-s", [node], pods, dcgm=_at_offset(COUNTER, 17), hours=(0, 1))
    yield Scenario(
        "energy-unlabeled",
        [node],
        pods[:2],
        dcgm=replace(COUNTER, maps_pods=False),
        utilization_source_by_pod={pod.name: "none" for pod in pods},
    )
    other = replace(gpu_node("n2", "a10g", whole_gpus_geometry("a10g")), provider_id="aws:///eu-west-1a/i-n2")
    yield Scenario(
        "energy-of-some-nodes",
        [node, other],
        [*pods, *_whole_gpu_pods(other)],
        dcgm=replace(COUNTER, nodes_without_energy=("n2",)),
    )
    yield from _shared_gpu_scenarios()


def pods_in_turn() -> Scenario:
    """A GPU with one series for the whole hour, whose holder changes: the series' increase is not enough."""
    node = gpu_node("n1", "a10g-one", whole_gpus_geometry("a10g-one"))
    pods = [
        Pod("ended", node, [0], constant_use("0.5"), deleted_at=22),
        Pod("started", node, [0], constant_use("1"), bound_at=40, running_at=43),
    ]
    return Scenario("energy-unlabeled-in-turn", [node], pods, dcgm=replace(COUNTER, maps_pods=False))


def _whole_gpu_pods(node: Node) -> Sequence[Pod]:
    return [
        Pod(f"steady-{node.name}", node, [0], constant_use("0.75")),
        Pod(
            f"two-{node.name}",
            node,
            [1, 2],
            use_by_device=[constant_use("0.9"), ((-1e6, "0.1"), (20, "0.8"))],
            requests=container_request(GPU, 2),
        ),
        Pod(f"ended-{node.name}", node, [3], constant_use("0.5"), deleted_at=22),
        Pod(f"started-{node.name}", node, [3], constant_use("1"), bound_at=40, running_at=43),
    ]


def _shared_gpu_scenarios() -> Iterator[Scenario]:
    sliced = gpu_node("n1", "a10g", time_sliced_geometry("a10g", 4))
    sharers = [
        Pod("a", sliced, [0], constant_use("0.2")),
        Pod("b", sliced, [0, 0], constant_use("0.1"), requests=container_request(GPU, 2)),
        Pod("late", sliced, [0], constant_use("0.5"), bound_at=30),
        Pod("alone", sliced, [1], constant_use("0.9")),
        Pod("apart", sliced, [2, 3], constant_use("0.4"), requests=container_request(GPU, 2)),
    ]
    for series in ("copies", "copies+device"):
        exporter = replace(COUNTER, shared_device_series=series)
        yield Scenario(f"energy-time-sliced-{series.replace('+', '-')}", [sliced], sharers, dcgm=exporter)
    yield Scenario("energy-time-sliced-power", [sliced], sharers, dcgm=POWER)
    mig = gpu_node("n1", "h100", mig_mixed_geometry("h100", [["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"], *[[]] * 7]))
    devices = mig.geometries[0].devices
    holders = [
        Pod(
            f"slice-{index}",
            mig,
            [index],
            constant_use(f"0.{index + 2}"),
            requests=container_request(resource_of_profile(devices[index].profile)),
            bound_at=15 if index == 3 else FOREVER[0],
        )
        for index in (0, 2, 3)
    ]
    holders.append(Pod("whole", mig, [5], constant_use("0.6")))
    yield Scenario("energy-mig", [mig], holders, dcgm=COUNTER)
    yield Scenario("energy-mig-power", [mig], holders, dcgm=POWER)


def _with_gap(exporter: Exporter, gap: Interval) -> Exporter:
    return replace(exporter, scraping=Scraping("dcgm-exporter", "", gaps=[gap]))


def _at_offset(exporter: Exporter, seconds: int) -> Exporter:
    return replace(exporter, scraping=Scraping("dcgm-exporter", "", offset_seconds=seconds))
