"""A client of the Prometheus or AMP workspace that a cluster's settings name."""

from collections.abc import Callable

from gpucost.runtime.deadline import Deadline
from gpucost.settings import ClusterSettings
from gpucost.sources.prometheus.auth import authenticator
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost.sources.prometheus.memory_budget import MemoryBudget
from gpucost.sources.prometheus.metrics_sources import TrustedSeries
from gpucost.sources.prometheus.queries import Queries


def connect(
    cluster: ClusterSettings,
    deadline: Deadline | None = None,
    budget: MemoryBudget | None = None,
    secret_value: Callable[[str], str] | None = None,
    make_client: Callable[..., PrometheusClient] = PrometheusClient,
) -> PrometheusClient:
    """Create the client. It sends no request yet, not even for credentials.

    Args:
        cluster: the cluster's settings.
        deadline: for all queries together; None: each query has only its own timeout.
        budget: memory for all responses together; None: each response has its own budget.
        secret_value: reads the secret of a bearer token; None reads it with the process's own credentials.
        make_client: makes the client from `PrometheusClient`'s arguments.
    """
    prometheus = cluster.prometheus
    return make_client(
        prometheus.url,
        cluster=cluster.name,
        auth=authenticator(prometheus, secret_value),
        headers=prometheus.headers,
        ca_certificates=prometheus.ca_certificates,
        timeout=prometheus.timeout_seconds,
        deadline=deadline,
        budget=budget,
        max_samples=prometheus.sample_limit(),
    )


class ClusterReader:
    """Base of readers that query a cluster's metrics without utilization signals.

    Args:
        cluster: the cluster's settings.
        deadline: for all of its queries together.
        secret_value, client: as in `connect`.
    """

    def __init__(
        self,
        cluster: ClusterSettings,
        deadline: Deadline | None = None,
        *,
        secret_value: Callable[[str], str] | None = None,
        client: Callable[..., PrometheusClient] = PrometheusClient,
    ) -> None:
        self._client = connect(cluster, deadline, secret_value=secret_value, make_client=client)
        self._queries = Queries(cluster.selector, [], trusted_series=TrustedSeries.from_settings(cluster.sources))
        self._cluster = cluster.name
