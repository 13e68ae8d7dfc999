"""Metrics sources that restart, have replicas or shards, have gaps, or are scraped at unusual intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpucost_devstack.fleet.builders import gpu_node, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import Exporter, Interval, KubeStateMetrics, Pod, Scenario
from gpucost_devstack.fleet.scenarios.lifetimes import mixed_lifetimes
from gpucost_devstack.fleet.scenarios.sharing import constant_use
from gpucost_devstack.fleet.scraping import Scraping

ALWAYS = (-1e6, 1e6)


def kube_state_metrics_instance(instance: str, **overrides: object) -> KubeStateMetrics:
    """An instance of kube-state-metrics, with scrape parameters."""
    return KubeStateMetrics(Scraping("kube-state-metrics", f"{instance}:8080", **overrides))  # type: ignore[arg-type]


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _instance_scenarios()
    yield from _gap_scenarios()
    yield from _scrape_interval_scenarios()


def _instance_scenarios() -> Iterator[Scenario]:
    mixed = mixed_lifetimes("ksm-restarted")
    yield replace(
        mixed,
        ksm=[
            kube_state_metrics_instance("a", lifetime=(-1e6, 30)),
            kube_state_metrics_instance("b", lifetime=(32, 1e6)),
        ],
    )
    pair = [kube_state_metrics_instance("a"), kube_state_metrics_instance("b", offset_seconds=17)]
    yield replace(mixed, name="ksm-pair", ksm=pair)
    yield replace(
        mixed,
        name="ksm-pair-one-restarts",
        ksm=[
            pair[0],
            kube_state_metrics_instance("b", offset_seconds=17, lifetime=(-1e6, 20)),
            kube_state_metrics_instance("c", offset_seconds=41, lifetime=(23, 1e6)),
        ],
    )
    shards = [replace(kube_state_metrics_instance(f"s{i}", offset_seconds=9 * i), shard=(i, 3)) for i in range(3)]
    yield replace(mixed, name="ksm-sharded", ksm=shards)
    yield replace(mixed, name="dcgm-restarted", dcgm=Exporter(Scraping("dcgm-exporter", "", gaps=[(30, 33)])))

    n = gpu_node("n1", "a10g-one", whole_gpus_geometry("a10g-one"))
    # The new instance exposes the second pod before the old one shows the end of the first: no double allocation.
    yield Scenario(
        "gpu-passed-on-during-a-restart",
        [n],
        [
            Pod("first", n, [0], constant_use("0.5"), deleted_at=29.05),
            Pod("second", n, [0], constant_use("0.7"), bound_at=29.1),
        ],
        ksm=[
            kube_state_metrics_instance("a", lifetime=(-1e6, 29.1)),
            kube_state_metrics_instance("b", offset_seconds=12, lifetime=(29.15, 1e6)),
        ],
    )


def _gap_scenarios() -> Iterator[Scenario]:
    for minutes in (2, 10, 40):
        for position, start in (("inside", 15), ("first-edge", -minutes / 2), ("last-edge", 60 - minutes / 2)):
            for source in ("both", "allocation", "utilization"):
                gap = [(start, start + minutes)]
                mixed = mixed_lifetimes(f"gap-{minutes}-{position}-{source}", hours=(0,))
                yield with_scrape_gap(mixed, source, gap)
    for up in ("absent in gaps", "dropped"):
        mixed = mixed_lifetimes(f"gap-up-{up.replace(' ', '-')}", hours=(0,))
        yield with_scrape_gap(mixed, "both", [(18, 28)], up=up)
    with_times = mixed_lifetimes("gap-with-times", hours=(0,))
    with_times = with_scrape_gap(with_times, "allocation", [(10, 45)])
    yield replace(with_times, name="gap-with-times", ksm=[replace(with_times.ksm[0], pod_times=True)])
    n = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"))
    inside = [
        Pod("always", n, [0], constant_use("0.5")),
        Pod("invisible", n, [1], constant_use("0.5"), bound_at=22, deleted_at=30),
        Pod("found-finished", n, [2], constant_use("0.5"), bound_at=21, finished_at=33),
    ]
    within_gap = Scenario("pod-in-a-gap", [n], inside)
    yield with_scrape_gap(within_gap, "allocation", [(20, 40)])
    with_times = with_scrape_gap(replace(within_gap, name="pod-in-a-gap-with-times"), "allocation", [(20, 40)])
    yield replace(with_times, ksm=[replace(with_times.ksm[0], pod_times=True)])
    yield Scenario(
        "dcgm-gone-half-way", [n], inside[:1], dcgm=Exporter(Scraping("dcgm-exporter", "", lifetime=(-1e6, 31)))
    )
    yield Scenario("signal-blank", [n], inside[:1], dcgm=Exporter(intervals_without_devices=[(10, 30)]))
    yield Scenario("no-dcgm", [n], inside[:1], dcgm=None, utilization_source_by_pod={"always": "none"})


def with_scrape_gap(scenario: Scenario, source: str, gap: Sequence[Interval], up: str = "kept") -> Scenario:
    """The same cluster with a gap in one source (`allocation`, `utilization`) or in `both`."""
    if source in {"both", "allocation"}:
        instances = [
            replace(instance, scraping=replace(instance.scraping, gaps=gap, up=up)) for instance in scenario.ksm
        ]
        scenario = replace(scenario, ksm=instances)
    if source in {"both", "utilization"} and scenario.dcgm is not None:
        scraping = replace(scenario.dcgm.scraping, gaps=gap, up=up)
        scenario = replace(scenario, dcgm=replace(scenario.dcgm, scraping=scraping))
    return scenario


def _scrape_interval_scenarios() -> Iterator[Scenario]:
    for seconds in (15, 30, 70):
        yield replace(mixed_lifetimes(f"every-{seconds}-seconds")).with_scraping(
            interval_seconds=seconds, offset_seconds=7
        )
    yield mixed_lifetimes("jitter").with_scraping(interval_seconds=30, jitter_ms=1900)
    yield mixed_lifetimes("changed-to-slower").with_scraping(interval_seconds=15, changed_interval=(25, 60))
    yield mixed_lifetimes("changed-to-faster").with_scraping(interval_seconds=60, changed_interval=(25, 15))
    yield mixed_lifetimes("on-the-edge").with_scraping(interval_seconds=60, offset_seconds=0)
    yield mixed_lifetimes("a-millisecond-before").with_scraping(interval_seconds=60, offset_seconds=59.999)
    n1, n2 = gpu_node("n1", "a10g", whole_gpus_geometry("a10g")), gpu_node("n2", "a10g", whole_gpus_geometry("a10g"))
    pods = [
        Pod(f"p{i}", n, [0], constant_use("0.5"), bound_at=start)
        for i, (n, start) in enumerate(((n1, -1e6), (n2, -1e6)))
    ]
    pods += [Pod("late", n2, [1], constant_use("0.9"), bound_at=30)]
    slow = Scraping("dcgm-exporter", "", interval_seconds=60)
    differing = Exporter(replace(slow, interval_seconds=15), scraping_by_node={"n2": slow})
    yield Scenario("exporters-differ", [n1, n2], pods, dcgm=differing)
    yield replace(
        mixed_lifetimes("skewed"),
        dcgm=Exporter(Scraping("dcgm-exporter", "", interval_seconds=30, offset_seconds=23.456)),
    )
    yield replace(
        mixed_lifetimes("no-up"),
        ksm=[kube_state_metrics_instance("a", up="dropped")],
        dcgm=Exporter(Scraping("dcgm-exporter", "", up="dropped")),
    )
