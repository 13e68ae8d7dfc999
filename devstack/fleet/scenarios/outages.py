"""Sources that restart, are doubled, sharded, silent for a while, or scraped at odd intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from devstack.fleet.builders import node, whole
from devstack.fleet.scenario import Exporter, KubeStateMetrics, Life, Pod, Scenario
from devstack.fleet.scenarios.lives import some_lives
from devstack.fleet.scenarios.sharing import flat
from devstack.fleet.scraping import Scraping

ALWAYS = (-1e6, 1e6)


def ksm(instance: str, **how: object) -> KubeStateMetrics:
    """An instance of kube-state-metrics."""
    return KubeStateMetrics(Scraping("kube-state-metrics", f"{instance}:8080", **how))  # type: ignore[arg-type]


def scenarios() -> Iterator[Scenario]:
    """All of this room."""
    yield from _instances()
    yield from _gaps()
    yield from _intervals()


def _instances() -> Iterator[Scenario]:
    lives = some_lives("ksm-restarted")
    yield replace(lives, ksm=[ksm("a", life=(-1e6, 30)), ksm("b", life=(32, 1e6))])
    pair = [ksm("a"), ksm("b", phase=17)]
    yield replace(lives, name="ksm-pair", ksm=pair)
    yield replace(
        lives,
        name="ksm-pair-one-restarts",
        ksm=[pair[0], ksm("b", phase=17, life=(-1e6, 20)), ksm("c", phase=41, life=(23, 1e6))],
    )
    shards = [replace(ksm(f"s{i}", phase=9 * i), shard=(i, 3)) for i in range(3)]
    yield replace(lives, name="ksm-sharded", ksm=shards)
    yield replace(
        lives,
        name="dcgm-restarted",
        dcgm=Exporter(Scraping("dcgm-exporter", "", gaps=[(30, 33)])),
    )

    n = node("n1", "a10g-one", whole("a10g-one"))
    # The new instance sees the successor before the old one can tell that the first has ended: nobody holds twice.
    yield Scenario(
        "handed-on-beside-a-restart",
        [n],
        [Pod("first", n, [0], flat("0.5"), deleted=29.05), Pod("second", n, [0], flat("0.7"), start=29.1)],
        ksm=[ksm("a", life=(-1e6, 29.1)), ksm("b", phase=12, life=(29.15, 1e6))],
    )


def _gaps() -> Iterator[Scenario]:
    for minutes in (2, 10, 40):
        for place, start in (("inside", 15), ("first-edge", -minutes / 2), ("last-edge", 60 - minutes / 2)):
            for source in ("both", "allocation", "utilization"):
                gap = [(start, start + minutes)]
                lives = some_lives(f"gap-{minutes}-{place}-{source}", hours=(0,))
                yield silent(lives, source, gap)
    for up in ("absent in gaps", "dropped"):
        lives = some_lives(f"gap-up-{up.replace(' ', '-')}", hours=(0,))
        yield silent(lives, "both", [(18, 28)], up=up)
    told = some_lives("gap-with-times", hours=(0,))
    told = silent(told, "allocation", [(10, 45)])
    yield replace(told, name="gap-with-times", ksm=[replace(told.ksm[0], times=True)])
    n = node("n1", "a10g", whole("a10g"))
    inside = [
        Pod("always", n, [0], flat("0.5")),
        Pod("invisible", n, [1], flat("0.5"), start=22, deleted=30),
        Pod("found-finished", n, [2], flat("0.5"), start=21, finished=33),
    ]
    life = Scenario("life-in-a-gap", [n], inside)
    yield silent(life, "allocation", [(20, 40)])
    told = silent(replace(life, name="life-in-a-gap-with-times"), "allocation", [(20, 40)])
    yield replace(told, ksm=[replace(told.ksm[0], times=True)])
    yield Scenario("dcgm-gone-half-way", [n], inside[:1], dcgm=Exporter(Scraping("dcgm-exporter", "", life=(-1e6, 31))))
    yield Scenario("signal-blank", [n], inside[:1], dcgm=Exporter(blank=[(10, 30)]))
    yield Scenario("no-dcgm", [n], inside[:1], dcgm=None, sources={"always": "none"})


def silent(scenario: Scenario, source: str, gap: Sequence[Life], up: str = "kept") -> Scenario:
    """The same cluster, of which one source (`allocation`, `utilization`) or `both` tell nothing for a time."""
    if source in {"both", "allocation"}:
        instances = [replace(one, scraping=replace(one.scraping, gaps=gap, up=up)) for one in scenario.ksm]
        scenario = replace(scenario, ksm=instances)
    if source in {"both", "utilization"} and scenario.dcgm is not None:
        scraping = replace(scenario.dcgm.scraping, gaps=gap, up=up)
        scenario = replace(scenario, dcgm=replace(scenario.dcgm, scraping=scraping))
    return scenario


def _intervals() -> Iterator[Scenario]:
    for seconds in (15, 30, 70):
        yield replace(some_lives(f"every-{seconds}-seconds")).with_scraping(seconds=seconds, phase=7)
    yield some_lives("jitter").with_scraping(seconds=30, jitter=1900)
    yield some_lives("changed-to-slower").with_scraping(seconds=15, then=(25, 60))
    yield some_lives("changed-to-faster").with_scraping(seconds=60, then=(25, 15))
    yield some_lives("on-the-edge").with_scraping(seconds=60, phase=0)
    yield some_lives("a-millisecond-before").with_scraping(seconds=60, phase=59.999)
    n1, n2 = node("n1", "a10g", whole("a10g")), node("n2", "a10g", whole("a10g"))
    pods = [Pod(f"p{i}", n, [0], flat("0.5"), start=start) for i, (n, start) in enumerate(((n1, -1e6), (n2, -1e6)))]
    pods += [Pod("late", n2, [1], flat("0.9"), start=30)]
    slow = Scraping("dcgm-exporter", "", seconds=60)
    differing = Exporter(replace(slow, seconds=15), by_node={"n2": slow})
    yield Scenario("exporters-differ", [n1, n2], pods, dcgm=differing)
    yield replace(some_lives("skewed"), dcgm=Exporter(Scraping("dcgm-exporter", "", seconds=30, phase=23.456)))
    yield replace(
        some_lives("no-up"), ksm=[ksm("a", up="dropped")], dcgm=Exporter(Scraping("dcgm-exporter", "", up="dropped"))
    )
