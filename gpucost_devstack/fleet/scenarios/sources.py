"""More outages of metrics sources: several gaps, gaps in one of several instances, and gaps at an hour's end."""

from collections.abc import Iterator
from dataclasses import replace

from gpucost_devstack.fleet.builders import gpu_node, mig_single_geometry, time_sliced_geometry, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import Exporter, Pod, Scenario
from gpucost_devstack.fleet.scenarios.lifetimes import mixed_lifetimes
from gpucost_devstack.fleet.scenarios.outages import kube_state_metrics_instance, with_scrape_gap
from gpucost_devstack.fleet.scenarios.sharing import constant_use
from gpucost_devstack.fleet.scraping import Scraping

OLD_SIGNALS = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1}
NEW_SIGNALS = {"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": 1}


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _several_gap_scenarios()
    yield from _exact_pod_time_scenarios()
    yield from _several_instance_scenarios()
    yield from _gap_at_hour_end_scenarios()
    yield from _exporter_outage_scenarios()
    yield from _unobserved_sharer_scenarios()


def _several_gap_scenarios() -> Iterator[Scenario]:
    three = [(8, 12), (25, 29), (47, 51)]
    yield with_scrape_gap(mixed_lifetimes("gaps-three-short"), "both", three)
    yield with_scrape_gap(mixed_lifetimes("gap-of-one-scrape", hours=(0,)), "both", [(29.5, 30.5)])
    yield with_scrape_gap(mixed_lifetimes("gaps-at-both-edges", hours=(0,)), "both", [(-20, 11), (49, 80)])
    yield with_scrape_gap(mixed_lifetimes("gap-just-short", hours=(0,)), "allocation", [(30.2, 34.7)])
    yield with_scrape_gap(mixed_lifetimes("gaps-apart", hours=(0,)), "utilization", three[:1])
    allocation_gap = with_scrape_gap(mixed_lifetimes("gaps-overlap", hours=(0,)), "allocation", [(15, 27)])
    yield with_scrape_gap(allocation_gap, "utilization", [(22, 35)])
    n = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"))
    on_the_hour = [
        Pod("from-the-hour", n, [0], constant_use("0.5"), bound_at=0),
        Pod("to-the-hour", n, [1], constant_use("0.5"), deleted_at=60),
        Pod("the-hour", n, [2], constant_use("0.5"), bound_at=0, deleted_at=60),
    ]
    yield Scenario("on-the-hour", [n], on_the_hour, hours=(-1, 0, 1))
    yield Scenario("on-the-hour-15", [n], on_the_hour, hours=(-1, 0, 1)).with_scraping(interval_seconds=15)


def _exact_pod_time_scenarios() -> Iterator[Scenario]:
    """Starts and ends in gaps, which kube_pod_status_scheduled_time and kube_pod_completion_time show exactly."""
    n = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"))
    pods = [
        # Just after the last scrape and before the next one fails. The gap has already begun.
        Pod("bound-at-once", n, [0], constant_use("0.5"), bound_at=20.4),
        Pod("bound-late", n, [1], constant_use("0.5"), bound_at=33.8),
        Pod("ends-at-once", n, [2], constant_use("0.5"), finished_at=20.4),
        Pod("ends-late", n, [3], constant_use("0.5"), finished_at=33.8),
    ]
    with_times = with_scrape_gap(Scenario("pod-times-in-a-gap", [n], pods), "allocation", [(20.2, 34)])
    yield replace(with_times, ksm=[replace(instance, pod_times=True) for instance in with_times.ksm])
    # Each shard was last scraped at a different time, and exposes only its own pods.
    shards = [replace(kube_state_metrics_instance(f"s{i}", offset_seconds=30 * i), shard=(i, 2)) for i in range(2)]
    pods_in_gap = [Pod(f"p{i}", n, [i], constant_use("0.5"), bound_at=20.1) for i in range(4)]
    sharded = with_scrape_gap(
        replace(with_times, name="pod-times-of-shards", pods=pods_in_gap, ksm=shards), "allocation", [(20.6, 34)]
    )
    yield replace(sharded, ksm=[replace(instance, pod_times=True) for instance in sharded.ksm])
    across = with_scrape_gap(
        replace(with_times, name="pod-times-in-a-gap-over-the-hour", hours=(0, 1)), "allocation", [(20.2, 66)]
    )
    late = [
        replace(pod, bound_at=pod.bound_at + 34) if pod.bound_at > 0 else replace(pod, finished_at=62) for pod in pods
    ]
    yield replace(across, pods=late, ksm=[replace(instance, pod_times=True) for instance in across.ksm])


def _several_instance_scenarios() -> Iterator[Scenario]:
    pair = [
        kube_state_metrics_instance("a", gaps=[(10, 20)]),
        kube_state_metrics_instance("b", offset_seconds=17, gaps=[(30, 40)]),
    ]
    yield replace(mixed_lifetimes("pair-silent-in-turn"), ksm=pair)
    both = [
        kube_state_metrics_instance("a", gaps=[(12, 24)]),
        kube_state_metrics_instance("b", offset_seconds=17, gaps=[(18, 30)]),
    ]
    yield replace(mixed_lifetimes("pair-silent-at-once"), ksm=both)
    yield replace(
        mixed_lifetimes("pair-at-differing-intervals"),
        ksm=[
            kube_state_metrics_instance("a", interval_seconds=15),
            kube_state_metrics_instance("b", interval_seconds=60, offset_seconds=17),
        ],
    )
    with_silent_shard = [
        replace(kube_state_metrics_instance(f"s{i}", gaps=[(20, 32)] if i == 1 else []), shard=(i, 3)) for i in range(3)
    ]
    yield replace(mixed_lifetimes("one-shard-silent", hours=(0,)), ksm=with_silent_shard)
    without_up = [
        replace(
            kube_state_metrics_instance(f"s{i}", interval_seconds=15, offset_seconds=7 * i, up="dropped"), shard=(i, 2)
        )
        for i in range(2)
    ]
    yield replace(mixed_lifetimes("no-up-sharded"), ksm=without_up)
    # A new rollout changes the number of shards, with a minute in which no shard answers.
    before = [replace(kube_state_metrics_instance(f"s{i}", lifetime=(-1e6, 30)), shard=(i, 2)) for i in range(2)]
    after = [replace(kube_state_metrics_instance(f"t{i}", lifetime=(31, 1e6)), shard=(i, 3)) for i in range(3)]
    yield replace(mixed_lifetimes("resharded"), ksm=[*before, *after])
    yield replace(
        mixed_lifetimes("ksm-three-times"),
        ksm=[
            kube_state_metrics_instance("a", lifetime=(-1e6, 10)),
            kube_state_metrics_instance("b", lifetime=(11, 25)),
            kube_state_metrics_instance("c", lifetime=(26, 1e6)),
        ],
    )


def _gap_at_hour_end_scenarios() -> Iterator[Scenario]:
    """Owners, labels and business units are known although a gap covers the hour's end."""
    n = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"))
    pods = [
        Pod("web", n, [0], constant_use("0.5"), owners=(("ReplicaSet", "web-6f7d"), ("Deployment", "web"))),
        Pod("seen", n, [1], constant_use("0.5"), owners=(("Job", "seen"),), labels={"label_team": "vision"}),
        Pod(
            "gone",
            n,
            [2],
            constant_use("0.5"),
            owners=(("Job", "gone"),),
            labels={"label_team": "vision"},
            deleted_at=30,
        ),
    ]
    settings = "business_units: [{name: vision, pod_labels: {team: vision}}]\n"
    units = {"seen": "vision", "gone": "vision"}
    scenario = Scenario("gap-at-the-end", [n], pods, settings=settings, business_unit_by_pod=units)
    yield with_scrape_gap(scenario, "allocation", [(50, 62)])
    yield with_scrape_gap(replace(scenario, name="long-gap-at-the-end"), "allocation", [(35, 75)])


def _exporter_outage_scenarios() -> Iterator[Scenario]:
    mixed = mixed_lifetimes("exporter-replaced")
    yield replace(mixed, dcgm=Exporter(restarts=[(30, 32)]))
    yield replace(mixed, name="exporter-replaced-twice", dcgm=Exporter(restarts=[(10, 11), (40, 41)], pod_uid=True))
    changing_use = ((-1e6, "0.9"), (15, "0.1"), (50, "0.5"))
    whole_node, shared = (
        gpu_node("n1", "a10g", whole_gpus_geometry("a10g")),
        gpu_node("n2", "a10g", time_sliced_geometry("a10g", 4)),
    )
    changing = [
        Pod("whole", whole_node, [0], changing_use),
        Pod("shared", shared, [0], changing_use),
        Pod("neighbor", shared, [0], constant_use("0.05")),
    ]
    for pause in (0.4, 1, 4):
        name = f"exporter-replaced-under-changing-use-{pause}"
        yield Scenario(name, [whole_node, shared], changing, dcgm=Exporter(restarts=[(30, 30 + pause)]))
    yield replace(
        mixed,
        name="exporter-upgraded",
        dcgm=Exporter(signals=OLD_SIGNALS, upgrade=(33, NEW_SIGNALS), restarts=[(32, 33)]),
    )
    yield replace(mixed, name="exporter-names-itself", dcgm=Exporter(hostname_is_pod=True))
    n1, n2 = gpu_node("n1", "a10g", whole_gpus_geometry("a10g")), gpu_node("n2", "a10g", whole_gpus_geometry("a10g"))
    pods = [
        Pod("old", n1, [0], constant_use("0.25")),
        Pod("new", n2, [0], constant_use("0.75")),
        Pod("late", n2, [1], constant_use("0.5"), bound_at=20),
    ]
    fleet = Scenario("exporters-of-two-versions", [n1, n2], pods)
    yield replace(fleet, dcgm=Exporter(signals=OLD_SIGNALS, signals_by_node={"n2": NEW_SIGNALS}))
    percent = {"DCGM_FI_DEV_GPU_UTIL": 100}
    yield replace(
        fleet, name="exporters-of-two-scales", dcgm=Exporter(signals=OLD_SIGNALS, signals_by_node={"n2": percent})
    )
    # GPU_UTIL only shows that some kernel ran. If the engine's signal exists too, that one counts.
    both = Exporter(signals=OLD_SIGNALS | {"DCGM_FI_DEV_GPU_UTIL": 300})
    yield Scenario("engine-before-gpu-util", [n1], [Pod("p", n1, [0], constant_use("0.25"))], dcgm=both)
    # Pods with samples at first and none until they end: the unobserved minutes must not repeat earlier use.
    silenced = Exporter(Scraping("dcgm-exporter", "", gaps=[(20.6, 45.6)], offset_seconds=22))
    ending = [
        Pod(f"ends-{end}", n1, [i], constant_use("0.5"), bound_at=19.1, deleted_at=end)
        for i, end in enumerate((21, 23.8, 28))
    ]
    yield Scenario(
        "ends-in-an-outage", [n1], [*ending, Pod("long", n1, [3], constant_use("0.5"), deleted_at=23.8)], dcgm=silenced
    )
    unlabelled = Scraping("dcgm-exporter", "")
    with_gap = Exporter(unlabelled, scraping_by_node={"n2": replace(unlabelled, gaps=[(20, 40)])})
    yield replace(fleet, name="one-exporter-silent", dcgm=with_gap)
    yield replace(
        fleet,
        name="one-exporter-missing",
        dcgm=Exporter(unlabelled, scraping_by_node={"n2": replace(unlabelled, lifetime=(-1e6, -1e5))}),
        utilization_source_by_pod={"new": "none", "late": "none"},
    )
    yield replace(
        fleet,
        name="all-exporters-silent",
        dcgm=Exporter(replace(unlabelled, gaps=[(-5, 65)])),
        utilization_source_by_pod={p.name: "none" for p in pods},
    )
    sliced = gpu_node("n1", "h100-one", mig_single_geometry("h100-one", "1g.10gb", 7))
    slices = [Pod("p", sliced, [0], constant_use("0.5")), Pod("q", sliced, [3], constant_use("0.25"), bound_at=20)]
    for reading in ("absent", "zero"):
        exporter = Exporter(signals=percent, mig_gpu_util=reading)
        sources = {"p": "none", "q": "none"}
        yield Scenario(f"gpu-util-on-mig-{reading}", [sliced], slices, dcgm=exporter, utilization_source_by_pod=sources)


def _unobserved_sharer_scenarios() -> Iterator[Scenario]:
    """A sharer that starts and ends in a gap does not change the observed use of the others."""
    n = gpu_node("n1", "a10g", time_sliced_geometry("a10g", 4))
    pods = [
        Pod("a", n, [0], constant_use("0.2")),
        Pod("b", n, [1], constant_use("0.3")),
        Pod("unseen", n, [0], constant_use("0.1"), bound_at=28, deleted_at=35),
    ]
    scraping = Scraping("dcgm-exporter", "", gaps=[(25, 40)])
    yield Scenario("sharer-unseen", [n], pods, dcgm=Exporter(scraping), utilization_source_by_pod={"unseen": "none"})
    with_brief = [*pods[:2], Pod("brief", n, [2], constant_use("0.1"), bound_at=20.2, deleted_at=20.9)]
    yield Scenario("sharer-for-a-moment", [n], with_brief)
    # Bound just before a gap of kube-state-metrics and labeled just after it: its device is known nevertheless.
    late = [*pods[:2], Pod("late", n, [0], constant_use("0.1"), bound_at=20.7, deleted_at=30)]
    slow = Exporter(Scraping("dcgm-exporter", "", offset_seconds=36))
    before = [kube_state_metrics_instance("a", interval_seconds=15, gaps=[(21.2, 35)])]
    yield Scenario("sharer-placed-by-a-later-label", [n], late, ksm=before, dcgm=slow)
