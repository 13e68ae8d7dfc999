"""Reads GPU allocation, utilization and capacity from Prometheus or AMP."""

from collections.abc import Callable
from datetime import UTC, datetime

from gpucost.core.metering.accelerators import ACCELERATOR_SIGNALS
from gpucost.core.metering.signals import signals_by_preference
from gpucost.runtime.deadline import Deadline
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost.sources.prometheus.connection import connect
from gpucost.sources.prometheus.memory_budget import MemoryBudget
from gpucost.sources.prometheus.metrics_sources import TrustedSeries
from gpucost.sources.prometheus.nodes import InstanceLookup
from gpucost.sources.prometheus.queries import InferenceLabels, Queries
from gpucost.sources.prometheus.reader import PrometheusReader


def metrics_reader(
    cluster: ClusterSettings,
    settings: CoreSettings,
    deadline: Deadline | None = None,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    secret_value: Callable[[str], str] | None = None,
    budget: MemoryBudget | None = None,
    make_client: Callable[..., PrometheusClient] = PrometheusClient,
    instances: InstanceLookup | None = None,
) -> PrometheusReader:
    """Create the metrics reader of a cluster.

    Args:
        cluster, deadline, secret_value, make_client: as in `connect`.
        settings: all settings.
        clock: returns the current time.
        budget: memory for everything that is read; None: as much as a function has.
        instances: as in `PrometheusReader`.
    """
    budget = budget or MemoryBudget()
    preferred, *fallbacks = signals_by_preference(settings.utilization.signal, settings.utilization.scale)
    return PrometheusReader(
        connect(cluster, deadline, budget, secret_value, make_client),
        Queries(
            cluster.selector,
            [[*preferred, *ACCELERATOR_SIGNALS], *fallbacks],
            trusted_series=TrustedSeries.from_settings(cluster.sources),
            measures_energy=settings.energy.enabled,
            inference=InferenceLabels(
                settings.inference.all_servers(),
                settings.inference.namespace_label,
                settings.inference.pod_label,
                settings.inference.gateway_counters(),
            )
            if settings.inference.enabled
            else None,
            units=cluster.gpus_per_unit(),
        ),
        cluster=cluster.name,
        clock=clock,
        budget=budget,
        per_process="process" in settings.utilization.sources,
        measures_contradicted=settings.utilization.on_contradiction == "device",
        pod_labels=bool(settings.cost_labels) or any(unit.pod_labels for unit in settings.business_units),
        namespace_labels=any(unit.namespace_labels for unit in settings.business_units),
        gpus_by_instance_type=settings.gpus_by_instance_type(),
        instances=instances,
    )
