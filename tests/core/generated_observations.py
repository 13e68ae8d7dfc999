"""Hypothesis strategies for observations of arbitrary clusters."""

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import strategies as st

from gpucost.core.hours import to_epoch_ms
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.metering import MeteringRules
from gpucost.core.metering.nvlink_domains import MinimumJob
from gpucost.core.metering.observations import (
    ContainerRequest,
    DeviceSeries,
    EnergySeries,
    NodeObservation,
    NodeState,
    Observation,
    PodObservation,
    SampleTimes,
)

START = datetime(2026, 11, 19, 10, tzinfo=UTC)
STEP = 60_000
RESOURCES = ["nvidia_com_gpu", "nvidia_com_mig_1g_5gb", "nvidia_com_mig_3g_20gb", "nvidia_com_gpu_shared"]
LABELS: list[dict[str, str]] = [
    {},
    {"label_node_kubernetes_io_instance_type": "p4d.24xlarge"},
    {"label_nvidia_com_gpu_replicas": "3", "label_nvidia_com_gpu_count": "2"},
    {"label_nvidia_com_gpu_product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
    {"label_node_kubernetes_io_instance_type": "p6e-gb200.36xlarge", "label_nvidia_com_gpu_clique": "c.1"},
]
units = st.integers(1, 9).map(Decimal)


def times(first: int, last: int) -> tuple[int, ...]:
    """Return the scrape times of the minutes from the first to the last."""
    return tuple(to_epoch_ms(START) + minute * STEP for minute in range(first, last + 1))


@st.composite
def sample_times(draw: st.DrawFn, instance: str = "k") -> SampleTimes:
    """Samples of the whole hour, or from one minute to another."""
    if draw(st.booleans()):
        return None
    first = draw(st.integers(-60, 59))
    return {instance: times(first, draw(st.integers(first, 119)))}


@st.composite
def states(draw: st.DrawFn, *, changed: bool = True) -> tuple[NodeState, ...]:
    """A node's states, with at most one change."""

    def state(sampled: SampleTimes) -> NodeState:
        capacity = draw(st.dictionaries(st.sampled_from(RESOURCES), units, min_size=1, max_size=3))
        allocatable = draw(st.dictionaries(st.sampled_from(RESOURCES), units, max_size=2))
        return NodeState(sampled, capacity, allocatable, draw(st.sampled_from(LABELS)))

    case = draw(st.integers(0, 2 if changed else 1))
    if case == 0:
        return ()
    if case == 1:
        return (state(draw(sample_times())),)
    change = draw(st.integers(1, 58))
    return state({"k": times(-60, change)}), state({"k": times(draw(st.integers(change + 1, 59)), 119)})


@st.composite
def nodes(draw: st.DrawFn, *, changed: bool = True) -> list[NodeObservation]:
    """Up to three nodes, some with changed states, one possibly replaced by a node of the same name."""
    observed_nodes = [
        NodeObservation(
            f"n{number}", "", draw(sample_times()), draw(st.sampled_from(LABELS)), draw(states(changed=changed))
        )
        for number in range(draw(st.integers(0, 3)))
    ]
    if observed_nodes and changed and draw(st.booleans()):
        change = draw(st.integers(1, 55))
        observed_nodes[0] = NodeObservation(
            "n0", "old", {"k": times(-60, change)}, observed_nodes[0].labels, observed_nodes[0].states
        )
        observed_nodes.append(
            NodeObservation("n0", "new", {"k": times(change + 2, 119)}, draw(st.sampled_from(LABELS)), draw(states()))
        )
    return observed_nodes


@st.composite
def pods(draw: st.DrawFn, names: list[str]) -> list[PodObservation]:
    """Up to six pods on some of the nodes."""
    return [
        PodObservation(
            namespace=namespace,
            pod=f"p{number}",
            uid=f"u{number}",
            node=draw(st.sampled_from(names)),
            requests=tuple(
                ContainerRequest(f"c{position}", kind, draw(st.sampled_from(RESOURCES)), draw(units))
                for position, kind in enumerate(
                    draw(st.lists(st.sampled_from(["container", "init", "sidecar"]), min_size=1, max_size=3))
                )
            ),
            held_samples=draw(sample_times()),
            running_samples=draw(sample_times()),
            labels=draw(st.sampled_from([{}, {"label_team": "x"}])),
            namespace_labels={"label_owner": "y"} if namespace == "b" else {},
        )
        for number, namespace in enumerate(
            draw(st.lists(st.sampled_from(["a", "b", "c-1"]), max_size=6)) if names else ()
        )
    ]


@st.composite
def devices(draw: st.DrawFn, holders: list[PodObservation], *, sampled: bool = False) -> list[DeviceSeries]:
    """Up to eight series, with sums or with samples."""
    series = []
    for holder in draw(st.lists(st.sampled_from([*holders, None]), max_size=8)):
        values = None
        if sampled or draw(st.booleans()):
            first = draw(st.integers(-5, 59))
            uses = st.decimals(0, 2, places=3)
            values = tuple((time, draw(uses)) for time in times(first, draw(st.integers(first, 59)))[:12])
        samples = draw(st.integers(0, 60))
        series.append(
            DeviceSeries(
                node=draw(st.sampled_from(["n0", "n1", "elsewhere"])),
                uuid=f"GPU-{draw(st.integers(0, 3))}",
                mig_instance=draw(st.sampled_from(["", "1", "2"])),
                mig_profile="",
                model="NVIDIA A100-SXM4-40GB",
                namespace=holder.namespace if holder else "",
                pod=holder.pod if holder else "",
                uid=draw(st.sampled_from(["", holder.uid])) if holder else "",
                slot=draw(st.sampled_from(["", "0", "1"])),
                resource_claim="",
                scrape_target="d",
                scale=draw(st.sampled_from([Decimal(1), Decimal(100)])),
                signal_rank=draw(st.integers(0, 1)),
                sample_count=samples,
                sample_sum=draw(st.decimals(0, 2, places=6)) * samples,
                samples=values,
            )
        )
    return series


@st.composite
def energy_series(draw: st.DrawFn) -> EnergySeries:
    """A GPU's counter or power, as an increase or as samples, which may fall, jump or be missing."""
    is_counter = draw(st.booleans())
    samples = None
    increase = draw(st.none() | st.decimals(-1, 40_000_000, places=3)) if is_counter else None
    if increase is None:
        first = draw(st.integers(-5, 59))
        values = st.decimals(0, 2_000_000, places=3)
        samples = tuple((time, draw(values)) for time in times(first, draw(st.integers(first, 60)))[:6])
    node, uuid = draw(st.sampled_from(["n0", "n1", "elsewhere"])), f"GPU-{draw(st.integers(0, 3))}"
    return EnergySeries(node, uuid, draw(st.sampled_from(["d", "e/other"])), is_counter, increase, samples)


@st.composite
def cluster_observations(draw: st.DrawFn, *, sampled: bool = False, changed: bool = True) -> Observation:
    """A cluster-hour with a gap in scraping and possible contradictions."""
    some_nodes = draw(nodes(changed=changed))
    some_pods = draw(pods([node.name for node in some_nodes] + draw(st.sampled_from([[], ["unknown"]]))))
    missing = draw(st.integers(0, 40))
    scrapes = Scrapes(times(-60, 9) + times(10 + missing, 119))
    return Observation(
        cluster="c",
        hour=START,
        allocation_scrapes={"k": scrapes},
        pods=tuple(some_pods),
        nodes=tuple(some_nodes),
        devices=tuple(draw(devices(some_pods, sampled=sampled))),
        utilization_scrapes={"d": scrapes},
        energy=tuple(draw(st.lists(energy_series(), max_size=4))),
    )


metering_rules = st.builds(
    MeteringRules,
    utilization_sources=st.permutations(["pod", "shared", "node", "cluster"]).flatmap(
        lambda sources: st.integers(0, 4).map(lambda count: tuple(sources[:count]))
    ),
    slices_per_gpu=st.sampled_from([None, 7]),
    minimum_jobs=st.sampled_from([(), (MinimumJob(3),), (MinimumJob(9),)]),
)
