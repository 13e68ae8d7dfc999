"""Limits of node pools and quotas of namespaces at the ends of hours, read with one query.

Karpenter names its metrics `karpenter_nodepool_usage` and `_limit` up to 0.37 and `karpenter_nodepools_…` from 1.0 on.
`resource_type` keeps its dot and slash. So does `resource` of `kube_resourcequota`, unlike other metrics of
kube-state-metrics. If several replicas of an exporter are scraped, the largest value is used.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from gpucost.core.amounts import is_amount
from gpucost.core.errors import MetricsResponseError
from gpucost.core.hours import HOUR, to_epoch_ms
from gpucost.core.ledger import Limits, PoolLimit, Quota
from gpucost.core.metering.accelerators import ACCELERATORS
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.connection import ClusterReader
from gpucost.sources.prometheus.queries import union

KUBERNETES_GPU_RESOURCES = "|".join(
    ("nvidia[.]com/.+", *(accelerator.kubernetes_resource_pattern for accelerator in ACCELERATORS))
)
"""A regular expression of GPU resources, as Kubernetes, Karpenter and resource quotas write them."""
_REQUESTS_PREFIX = "requests."
MAX_LIMIT = Decimal(10**9)
"""Units of a limit or quota; larger values are ignored as implausible."""
_HOUR_RANGE = "[1h] offset 1ms"


class NodePoolLimitsReader(ClusterReader):
    """Reads the limits of one cluster's node pools and namespaces."""

    def read(self, hours: Sequence[datetime]) -> list[Limits]:
        """The last limits and quotas in each of several consecutive hours.

        Raises:
            MetricsUnavailableError, MetricsResponseError: see `PrometheusClient`.
        """
        series = self._client.query_range(self._query(), hours[0] + HOUR, hours[-1] + HOUR)
        try:
            return [self._limits(hour, tables.rows_at(series, to_epoch_ms(hour + HOUR))) for hour in hours]
        except ValueError as error:
            raise MetricsResponseError(f"cluster {self._cluster}: limits cannot be read: {error}") from error

    def _query(self) -> str:
        def pools(metric: str) -> str:
            selectors = [
                self._queries.series_selector(
                    f"karpenter_{pool}_{metric}", f'resource_type=~"{KUBERNETES_GPU_RESOURCES}"'
                )
                for pool in ("nodepools", "nodepool")
            ]
            return " or ".join(_last_value(selector, "nodepool, resource_type") for selector in selectors)

        def quotas(kind: str) -> str:
            resources = f'resource=~"requests[.]({KUBERNETES_GPU_RESOURCES})"'
            selector = self._queries.series_selector("kube_resourcequota", resources, f'type="{kind}"')
            return _last_value(selector, "namespace, exported_namespace, resourcequota, resource")

        return union(
            {
                "pool-used": f"({pools('usage')})",
                "pool-limit": f"({pools('limit')})",
                "quota-used": f"({quotas('used')})",
                "quota-hard": f"({quotas('hard')})",
            }
        )

    def _limits(self, hour: datetime, rows: dict[str, tables.Rows]) -> Limits:
        pools: dict[tuple[str, str], dict[str, Decimal]] = {}
        quotas: dict[tuple[str, str, str], dict[str, Decimal]] = {}
        for stat in ("pool-used", "pool-limit"):
            for labels, value in rows.get(stat, []):
                if is_amount(value, MAX_LIMIT):
                    pools.setdefault((labels.get("nodepool", ""), labels.get("resource_type", "")), {})[stat] = value
        for stat in ("quota-used", "quota-hard"):
            for labels, value in rows.get(stat, []):
                resource = labels.get("resource", "").removeprefix(_REQUESTS_PREFIX)
                key = (tables.exported_label(labels, "namespace"), labels.get("resourcequota", ""), resource)
                if is_amount(value, MAX_LIMIT):
                    quotas.setdefault(key, {})[stat] = value
        return Limits(
            self._cluster,
            hour,
            tuple(
                PoolLimit(*key, amounts.get("pool-used"), amounts.get("pool-limit"))
                for key, amounts in sorted(pools.items())
            ),
            tuple(
                Quota(*key, amounts.get("quota-hard"), amounts.get("quota-used"))
                for key, amounts in sorted(quotas.items())
            ),
        )


def _last_value(selector: str, names: str) -> str:
    """The value at the hour's end, else the last value in the hour.

    The value at the end comes first, so that a replica that is gone does not override its successor.
    """
    at_end, last = f"{selector} offset 1ms", f"last_over_time({selector}{_HOUR_RANGE})"
    return f"(max by ({names}) ({at_end}) or max by ({names}) ({last}))"
