"""What it costs to read the energy of GPUs."""

from collections.abc import Callable

from gpucost_devstack.fleet.power import ENERGY_COUNTER
from tests.system.limited import limited
from tests.system.test_economy import attribute, cluster
from tests.system.timeline import Timeline

OFF = "energy: {enabled: false}"


def queries_of(prometheus: Callable[[str], str], timeline: Timeline, more: str = "") -> list[str]:
    with limited(prometheus(timeline.text()), 10**9) as (url, traffic):
        attribute(url, more=more)
    return list(traffic.queries)


def test_energy_takes_no_further_query(prometheus: Callable[[str], str]) -> None:
    """Counters that were in every scrape are read with the devices, and clusters without them have no further query."""
    without = queries_of(prometheus, cluster(8))
    with_counter = cluster(8)
    for i in range(8):
        pod_labels = {"exported_pod": f"p{i}", "exported_namespace": "team"}
        with_counter.device(7e9, -65, node=f"n{i // 4}", gpu=i % 4, signal=ENERGY_COUNTER, **pod_labels)
    assert len(queries_of(prometheus, with_counter)) == len(without)
    assert len(queries_of(prometheus, cluster(8), OFF)) == len(without)


def test_energy_that_is_off_is_not_queried(prometheus: Callable[[str], str]) -> None:
    assert not any(ENERGY_COUNTER in query for query in queries_of(prometheus, cluster(4), OFF))
    assert any(ENERGY_COUNTER in query for query in queries_of(prometheus, cluster(4)))
