"""A client of the Prometheus or AMP workspace that a cluster's settings name."""

from gpucost.adapters.prometheus.auth import authenticator
from gpucost.adapters.prometheus.client import PrometheusClient
from gpucost.adapters.prometheus.queries import Queries
from gpucost.adapters.prometheus.sources import Sources
from gpucost.settings import ClusterSettings


def connect(cluster: ClusterSettings) -> PrometheusClient:
    """The client; nothing is asked yet, not for credentials either."""
    prometheus = cluster.prometheus
    return PrometheusClient(
        prometheus.url,
        cluster=cluster.name,
        auth=authenticator(prometheus),
        timeout=prometheus.timeout_seconds,
        most_samples=prometheus.most_samples(),
    )


class ClusterReader:
    """Asks a cluster's metrics one thing, without signals of utilization.

    Args:
        cluster: as its settings say.
    """

    def __init__(self, cluster: ClusterSettings) -> None:
        self._client = connect(cluster)
        self._queries = Queries(cluster.selector, [], sources=Sources.of(cluster.sources))
        self._cluster = cluster.name
