"""Faults on a real Prometheus."""

from typing import Any

from gpucost.sources.prometheus import metrics_reader
from tests.chaos.bench import Bench
from tests.chaos.crash import baselines, compare
from tests.chaos.proxy import FAILURES, failing_proxy
from tests.prometheus_clients import client_without_waits


def killed_between_queries(bench: Bench) -> None:
    """Killed after every query of two hours. (In `crash`, the reader of an hour is a single call.)"""
    parameters = {"first": bench.first_seen, "clusters": ("west",), "prometheus": bench.prometheus}
    queries = 0
    with bench.deployment(**parameters) as undisturbed, bench.deployment(**parameters) as disturbed:
        for number, expected, _ in baselines(undisturbed, range(2)):
            for call_number, name in enumerate(expected.calls, start=1):
                if name == "ask":
                    queries += 1
                    disturbed.restore(expected.before)
                    disturbed.external_calls.plan[call_number] = "killed after"
                    disturbed.run(number, number + 1)
                    compare(bench.report, f"real hour {number}, killed after call {call_number}", disturbed, expected)
        bench.check(
            "real hours were seen",
            holds=any(pod_line.allocated_usd for pod_line in undisturbed.ledger.lines("west", bench.first_seen)),
        )
    bench.check("killed between queries", holds=queries >= 16)


def prometheus_failures(bench: Bench) -> None:
    """A real Prometheus with every kind of failure, for one query and for a whole attempt."""
    expected_lines = _attributed(bench, bench.prometheus)
    bench.check(
        "without failure", holds=bool(expected_lines) and all(pod_line.allocated_usd for pod_line in expected_lines)
    )
    for failure in FAILURES:
        for queries in (1, 10_000):
            with failing_proxy(bench.prometheus, failure, queries) as (url, refused):
                lines = _attributed(bench, url)
                bench.check(f"{failure}, {queries}: was there", holds=refused() > 0)
            fault = f"{failure}, {'once' if queries == 1 else 'for an attempt'}"
            bench.check(fault, holds=lines == expected_lines)


def _attributed(bench: Bench, url: str) -> list[Any]:
    """The hour's lines after two ticks. The failure ends after the first."""
    with bench.deployment(first=bench.first_seen, clusters=("west",)) as deployment:
        addresses = iter([url, *[bench.prometheus] * 100])

        def readers(cluster: Any, settings: Any) -> Any:
            address = cluster.prometheus.model_copy(update={"url": next(addresses), "timeout_seconds": 1})
            cluster = cluster.model_copy(update={"prometheus": address})
            return metrics_reader(cluster, settings, make_client=client_without_waits)

        deployment.readers = readers
        deployment.run(0, 1)
        if deployment.dead:
            return []
        return sorted(deployment.ledger.lines("west", bench.first_seen), key=lambda pod_line: pod_line.uid)
