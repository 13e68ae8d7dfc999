"""Rows of the fault table on a real Prometheus."""

from typing import Any
from unittest.mock import patch

from gpucost.sources.prometheus import metrics_reader
from tests.chaos.bench import Bench
from tests.chaos.crash import compare, undisturbed
from tests.chaos.proxy import TROUBLES, troubled


def killed_between_queries(bench: Bench) -> None:
    """Killed after every single query of two hours; the crash points' own reader is one call for all of an hour's."""
    how = {"first": bench.first_seen, "clusters": ("west",), "prometheus": bench.prometheus}
    asked = 0
    with bench.world(**how) as quiet, bench.world(**how) as disturbed:
        for number, expected, _ in undisturbed(quiet, range(2)):
            for place, name in enumerate(expected.calls, start=1):
                if name == "ask":
                    asked += 1
                    disturbed.restore(expected.before)
                    disturbed.outside.plan[place] = "killed after"
                    disturbed.run(number, number + 1)
                    compare(bench.verdict, f"real hour {number}, killed after call {place}", disturbed, expected)
        bench.check(
            "real hours were seen", holds=any(one.allocated_usd for one in quiet.ledger.lines("west", bench.first_seen))
        )
    bench.check("killed between queries", holds=asked >= 16)


def prometheus_troubles(bench: Bench) -> None:
    """A real Prometheus in every kind of trouble: for one query, and for a whole attempt."""
    quiet = _attributed(bench, bench.prometheus)
    bench.check("without trouble", holds=bool(quiet) and all(one.allocated_usd for one in quiet))
    for trouble in TROUBLES:
        for queries in (1, 10_000):
            with troubled(bench.prometheus, trouble, queries) as (url, refused):
                found = _attributed(bench, url)
                bench.check(f"{trouble}, {queries}: was there", holds=refused() > 0)
            what = f"{trouble}, {'once' if queries == 1 else 'for an attempt'}"
            bench.check(what, holds=found == quiet)


def _attributed(bench: Bench, url: str) -> list[Any]:
    """The hour's lines after as many ticks as it needs, the trouble being over after the first."""
    with bench.world(first=bench.first_seen, clusters=("west",)) as world:
        addresses = iter([url, *[bench.prometheus] * 100])

        def readers(cluster: Any, settings: Any) -> Any:
            address = cluster.prometheus.model_copy(update={"url": next(addresses), "timeout_seconds": 1})
            return metrics_reader(cluster.model_copy(update={"prometheus": address}), settings)

        world.readers = readers
        with patch("gpucost.sources.prometheus.client.BACKOFF_SECONDS", 0.0):
            world.run(0, 1)
        if world.dead:
            return []
        return sorted(world.ledger.lines("west", bench.first_seen), key=lambda one: one.uid)
