"""A client of the Prometheus or AMP workspace that a cluster's settings name."""

from gpucost.runtime.deadline import Deadline
from gpucost.settings import ClusterSettings
from gpucost.sources.prometheus.auth import authenticator
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost.sources.prometheus.memory_budget import MemoryBudget
from gpucost.sources.prometheus.queries import Queries
from gpucost.sources.prometheus.source_selectors import Sources


def connect(
    cluster: ClusterSettings, deadline: Deadline | None = None, budget: MemoryBudget | None = None
) -> PrometheusClient:
    """The client; nothing is asked yet, not for credentials either.

    Args:
        cluster: as its settings say.
        deadline: for all of its queries together; None: each query alone ends in time.
        budget: memory for all of its answers together; None: for each alone.
    """
    prometheus = cluster.prometheus
    return PrometheusClient(
        prometheus.url,
        cluster=cluster.name,
        auth=authenticator(prometheus),
        timeout=prometheus.timeout_seconds,
        deadline=deadline,
        budget=budget,
        max_samples=prometheus.most_samples(),
    )


class ClusterReader:
    """Asks a cluster's metrics one thing, without signals of utilization.

    Args:
        cluster: as its settings say.
        deadline: for all of its queries together.
    """

    def __init__(self, cluster: ClusterSettings, deadline: Deadline | None = None) -> None:
        self._client = connect(cluster, deadline)
        self._queries = Queries(cluster.selector, [], sources=Sources.from_settings(cluster.sources))
        self._cluster = cluster.name
