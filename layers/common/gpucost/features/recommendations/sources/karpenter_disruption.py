"""Reads from Karpenter's metrics which nodes it could have removed: one query for a week.

- `karpenter_voluntary_disruption_eligible_nodes{reason}`: nodes that its settings, pods' annotations and
  PodDisruptionBudgets let it take into account, for the whole cluster;
- `karpenter_nodepools_allowed_disruptions{nodepool, reason}`: how many a pool's budgets allow at once, exposed
  while there are eligible nodes.

No metric shows `consolidationPolicy` or `consolidateAfter`. Reasons are `Underutilized` or `underutilized`, by version.
"""

from datetime import datetime
from decimal import Decimal

from gpucost.core.errors import MetricsResponseError
from gpucost.core.metering.implausible_samples import is_count
from gpucost.features.recommendations.history import KarpenterDisruption
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.connection import ClusterReader
from gpucost.sources.prometheus.queries import STATISTIC_LABEL, union

ELIGIBLE_NODES = "karpenter_voluntary_disruption_eligible_nodes"
ALLOWED_DISRUPTIONS = "karpenter_nodepools_allowed_disruptions"
_REASONS = 'reason=~"(?i)underutilized|empty"'
_WEEK_RANGE = "[7d] offset 1ms"
MAX_NODES = Decimal(10**6)


class PrometheusDisruption(ClusterReader):
    """Reads Karpenter's disruption metrics of one cluster."""

    def week(self, end: datetime) -> KarpenterDisruption:
        """The maximum of the seven days before a time. Reasons without samples are absent.

        Raises:
            MetricsUnavailableError, MetricsResponseError: from the client.
        """

        def weekly_maximum(metric: str, by: str) -> str:
            return f"max by ({by}) (max_over_time({self._queries.series_selector(metric, _REASONS)}{_WEEK_RANGE}))"

        query = union(
            {
                "eligible": weekly_maximum(ELIGIBLE_NODES, "reason"),
                "allowed": weekly_maximum(ALLOWED_DISRUPTIONS, "nodepool, reason"),
            }
        )
        eligible: dict[str, int] = {}
        allowed: dict[tuple[str, str], int] = {}
        for series in self._client.query(query, end):
            try:
                sample = tables.parse_number(series.samples[-1][1])
            except ValueError as error:
                raise MetricsResponseError(
                    f"cluster {self._cluster}: the response about Karpenter is invalid: {error}"
                ) from error
            if not is_count(sample.to_integral_value() if sample.is_finite() else sample, MAX_NODES):
                continue
            count = int(sample)
            reason = series.labels.get("reason", "").lower()
            if series.labels.get(STATISTIC_LABEL) == "eligible":
                eligible[reason] = max(eligible.get(reason, 0), count)
            else:
                key = series.labels.get("nodepool", ""), reason
                allowed[key] = max(allowed.get(key, 0), count)
        return KarpenterDisruption(eligible, allowed)
