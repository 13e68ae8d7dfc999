"""More that happens to sources: gaps one after the other, in one of several instances, and at an hour's end."""

from collections.abc import Iterator
from dataclasses import replace

from devstack.fleet.builders import mig_single, node, time_sliced, whole
from devstack.fleet.scenario import Exporter, Pod, Scenario
from devstack.fleet.scenarios.lives import some_lives
from devstack.fleet.scenarios.outages import ksm, silent
from devstack.fleet.scenarios.sharing import flat
from devstack.fleet.scraping import Scraping

OLD = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1}
NEW = {"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": 1}


def scenarios() -> Iterator[Scenario]:
    """All of this room."""
    yield from _several_gaps()
    yield from _times_told()
    yield from _instances()
    yield from _who_is_told_at_the_end()
    yield from _exporters()
    yield from _shared_and_dark()


def _several_gaps() -> Iterator[Scenario]:
    three = [(8, 12), (25, 29), (47, 51)]
    yield silent(some_lives("gaps-three-short"), "both", three)
    yield silent(some_lives("gap-of-one-scrape", hours=(0,)), "both", [(29.5, 30.5)])
    yield silent(some_lives("gaps-at-both-edges", hours=(0,)), "both", [(-20, 11), (49, 80)])
    yield silent(some_lives("gap-just-short", hours=(0,)), "allocation", [(30.2, 34.7)])
    yield silent(some_lives("gaps-apart", hours=(0,)), "utilization", three[:1])
    apart = silent(some_lives("gaps-overlap", hours=(0,)), "allocation", [(15, 27)])
    yield silent(apart, "utilization", [(22, 35)])
    n = node("n1", "a10g", whole("a10g"))
    on_the_hour = [
        Pod("from-the-hour", n, [0], flat("0.5"), start=0),
        Pod("to-the-hour", n, [1], flat("0.5"), deleted=60),
        Pod("the-hour", n, [2], flat("0.5"), start=0, deleted=60),
    ]
    yield Scenario("on-the-hour", [n], on_the_hour, hours=(-1, 0, 1))
    yield Scenario("on-the-hour-15", [n], on_the_hour, hours=(-1, 0, 1)).with_scraping(seconds=15)


def _times_told() -> Iterator[Scenario]:
    """Starts and ends in gaps that kube_pod_status_scheduled_time and kube_pod_completion_time tell exactly."""
    n = node("n1", "a10g", whole("a10g"))
    pods = [
        # Just after the last scrape, before the next one failed: the gap has begun all the same.
        Pod("bound-at-once", n, [0], flat("0.5"), start=20.4),
        Pod("bound-late", n, [1], flat("0.5"), start=33.8),
        Pod("ends-at-once", n, [2], flat("0.5"), finished=20.4),
        Pod("ends-late", n, [3], flat("0.5"), finished=33.8),
    ]
    told = silent(Scenario("times-told-in-a-gap", [n], pods), "allocation", [(20.2, 34)])
    yield replace(told, ksm=[replace(one, times=True) for one in told.ksm])
    # Each shard was scraped at another time before the gap, and looks at its own pods only.
    shards = [replace(ksm(f"s{i}", phase=30 * i), shard=(i, 2)) for i in range(2)]
    several = [Pod(f"p{i}", n, [i], flat("0.5"), start=20.1) for i in range(4)]
    sharded = silent(replace(told, name="times-told-to-shards", pods=several, ksm=shards), "allocation", [(20.6, 34)])
    yield replace(sharded, ksm=[replace(one, times=True) for one in sharded.ksm])
    across = silent(replace(told, name="times-told-in-a-gap-over-the-hour", hours=(0, 1)), "allocation", [(20.2, 66)])
    late = [replace(one, start=one.start + 34) if one.start > 0 else replace(one, finished=62) for one in pods]
    yield replace(across, pods=late, ksm=[replace(one, times=True) for one in across.ksm])


def _instances() -> Iterator[Scenario]:
    pair = [ksm("a", gaps=[(10, 20)]), ksm("b", phase=17, gaps=[(30, 40)])]
    yield replace(some_lives("pair-silent-in-turn"), ksm=pair)
    both = [ksm("a", gaps=[(12, 24)]), ksm("b", phase=17, gaps=[(18, 30)])]
    yield replace(some_lives("pair-silent-at-once"), ksm=both)
    yield replace(some_lives("pair-at-differing-intervals"), ksm=[ksm("a", seconds=15), ksm("b", seconds=60, phase=17)])
    one_silent = [replace(ksm(f"s{i}", gaps=[(20, 32)] if i == 1 else []), shard=(i, 3)) for i in range(3)]
    yield replace(some_lives("one-shard-silent", hours=(0,)), ksm=one_silent)
    untold = [replace(ksm(f"s{i}", seconds=15, phase=7 * i, up="dropped"), shard=(i, 2)) for i in range(2)]
    yield replace(some_lives("no-up-sharded"), ksm=untold)
    # Rolled out anew as another number of shards, with a minute in which nothing answers.
    before = [replace(ksm(f"s{i}", life=(-1e6, 30)), shard=(i, 2)) for i in range(2)]
    after = [replace(ksm(f"t{i}", life=(31, 1e6)), shard=(i, 3)) for i in range(3)]
    yield replace(some_lives("resharded"), ksm=[*before, *after])
    yield replace(
        some_lives("ksm-three-times"),
        ksm=[ksm("a", life=(-1e6, 10)), ksm("b", life=(11, 25)), ksm("c", life=(26, 1e6))],
    )


def _who_is_told_at_the_end() -> Iterator[Scenario]:
    """Owners, labels and business units are known although nobody looked when the hour ended."""
    n = node("n1", "a10g", whole("a10g"))
    pods = [
        Pod("web", n, [0], flat("0.5"), owners=(("ReplicaSet", "web-6f7d"), ("Deployment", "web"))),
        Pod("seen", n, [1], flat("0.5"), owners=(("Job", "seen"),), labels={"label_team": "vision"}),
        Pod("gone", n, [2], flat("0.5"), owners=(("Job", "gone"),), labels={"label_team": "vision"}, deleted=30),
    ]
    settings = "business_units: [{name: vision, pod_labels: {team: vision}}]\n"
    units = {"seen": "vision", "gone": "vision"}
    told = Scenario("told-at-the-end", [n], pods, settings=settings, units=units)
    yield silent(told, "allocation", [(50, 62)])
    yield silent(replace(told, name="told-at-the-end-for-long"), "allocation", [(35, 75)])


def _exporters() -> Iterator[Scenario]:
    lives = some_lives("exporter-replaced")
    yield replace(lives, dcgm=Exporter(restarts=[(30, 32)]))
    yield replace(lives, name="exporter-replaced-twice", dcgm=Exporter(restarts=[(10, 11), (40, 41)], pod_uid=True))
    bent = ((-1e6, "0.9"), (15, "0.1"), (50, "0.5"))
    one, shared = node("n1", "a10g", whole("a10g")), node("n2", "a10g", time_sliced("a10g", 4))
    changing = [
        Pod("whole", one, [0], bent),
        Pod("shared", shared, [0], bent),
        Pod("beside", shared, [0], flat("0.05")),
    ]
    for pause in (0.4, 1, 4):
        name = f"exporter-replaced-under-changing-use-{pause}"
        yield Scenario(name, [one, shared], changing, dcgm=Exporter(restarts=[(30, 30 + pause)]))
    yield replace(lives, name="exporter-upgraded", dcgm=Exporter(signals=OLD, upgraded=(33, NEW), restarts=[(32, 33)]))
    yield replace(lives, name="exporter-names-itself", dcgm=Exporter(hostname_is_pod=True))
    n1, n2 = node("n1", "a10g", whole("a10g")), node("n2", "a10g", whole("a10g"))
    pods = [
        Pod("old", n1, [0], flat("0.25")),
        Pod("new", n2, [0], flat("0.75")),
        Pod("late", n2, [1], flat("0.5"), start=20),
    ]
    fleet = Scenario("exporters-of-two-versions", [n1, n2], pods)
    yield replace(fleet, dcgm=Exporter(signals=OLD, signals_by_node={"n2": NEW}))
    percent = {"DCGM_FI_DEV_GPU_UTIL": 100}
    yield replace(fleet, name="exporters-of-two-scales", dcgm=Exporter(signals=OLD, signals_by_node={"n2": percent}))
    # GPU_UTIL says that any kernel ran: where the engine's own signal is there too, it is what counts.
    both = Exporter(signals=OLD | {"DCGM_FI_DEV_GPU_UTIL": 300})
    yield Scenario("engine-before-gpu-util", [n1], [Pod("p", n1, [0], flat("0.25"))], dcgm=both)
    # Seen for a while, and unseen until they end: minutes that nobody saw are not minutes like those before.
    silenced = Exporter(Scraping("dcgm-exporter", "", gaps=[(20.6, 45.6)], phase=22))
    ending = [Pod(f"ends-{end}", n1, [i], flat("0.5"), start=19.1, deleted=end) for i, end in enumerate((21, 23.8, 28))]
    yield Scenario("ends-in-an-outage", [n1], [*ending, Pod("long", n1, [3], flat("0.5"), deleted=23.8)], dcgm=silenced)
    dark = Scraping("dcgm-exporter", "")
    one_dark = Exporter(dark, by_node={"n2": replace(dark, gaps=[(20, 40)])})
    yield replace(fleet, name="one-exporter-silent", dcgm=one_dark)
    yield replace(
        fleet,
        name="one-exporter-missing",
        dcgm=Exporter(dark, by_node={"n2": replace(dark, life=(-1e6, -1e5))}),
        sources={"new": "none", "late": "none"},
    )
    yield replace(
        fleet,
        name="all-exporters-silent",
        dcgm=Exporter(replace(dark, gaps=[(-5, 65)])),
        sources={p.name: "none" for p in pods},
    )
    sliced = node("n1", "h100-one", mig_single("h100-one", "1g.10gb", 7))
    slices = [Pod("p", sliced, [0], flat("0.5")), Pod("q", sliced, [3], flat("0.25"), start=20)]
    for said in ("absent", "zero"):
        exporter = Exporter(signals=percent, mig_gpu_util=said)
        sources = {"p": "none", "q": "none"}
        yield Scenario(f"gpu-util-on-mig-{said}", [sliced], slices, dcgm=exporter, sources=sources)


def _shared_and_dark() -> Iterator[Scenario]:
    """A sharer that comes and goes while devices are not seen leaves what was seen of the others as it is."""
    n = node("n1", "a10g", time_sliced("a10g", 4))
    pods = [
        Pod("a", n, [0], flat("0.2")),
        Pod("b", n, [1], flat("0.3")),
        Pod("unseen", n, [0], flat("0.1"), start=28, deleted=35),
    ]
    scraping = Scraping("dcgm-exporter", "", gaps=[(25, 40)])
    yield Scenario("sharer-unseen", [n], pods, dcgm=Exporter(scraping), sources={"unseen": "none"})
    beside = [*pods[:2], Pod("brief", n, [2], flat("0.1"), start=20.2, deleted=20.9)]
    yield Scenario("sharer-for-a-moment", [n], beside)
    # Bound just before kube-state-metrics falls silent, labelled just after: it is known where it is all the same.
    late = [*pods[:2], Pod("late", n, [0], flat("0.1"), start=20.7, deleted=30)]
    slow = Exporter(Scraping("dcgm-exporter", "", phase=36))
    before = [ksm("a", seconds=15, gaps=[(21.2, 35)])]
    yield Scenario("sharer-placed-by-a-later-label", [n], late, ksm=before, dcgm=slow)
