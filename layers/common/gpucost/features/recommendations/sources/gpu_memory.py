"""Reads the GPU memory peaks of pods: one query per day, because the ledger does not hold memory.

A day of 10,000 pods scraped every 30 seconds is 29 million samples, 0.3 cents at AMP's price.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from gpucost.core.errors import MetricsResponseError
from gpucost.core.metering.signals import SUCCESSORS
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.connection import ClusterReader
from gpucost.sources.prometheus.devices import labeled_pod
from gpucost.sources.prometheus.queries import STATISTIC_LABEL, union

_DAY = timedelta(days=1)
_MIB = 2**20
_FRAMEBUFFER_USED = "DCGM_FI_DEV_FB_USED"
GPU_MEMORY_METRICS: Mapping[str, int] = {_FRAMEBUFFER_USED: _MIB, SUCCESSORS[_FRAMEBUFFER_USED]: 1}
"""The metrics of the memory in use, and the bytes of their unit."""
MAX_GPU_MEMORY_MIB = 10**8
"""Of one GPU: 100 TiB. Larger samples are implausible and ignored."""
_LABELS = "namespace, pod, exported_namespace, exported_pod, pod_namespace, pod_name"


class PrometheusGpuMemory(ClusterReader):
    """Reads GPU memory of one cluster."""

    def peaks(self, day: datetime) -> dict[tuple[str, str], float]:
        """The largest GPU memory of each pod (namespace, name) on a UTC day in bytes. Pods without samples are absent.

        Raises:
            MetricsUnavailableError, MetricsResponseError: from the client.
        """
        query = union(
            {
                name: f"max by ({_LABELS}) (max_over_time({self._queries.series_selector(name)}[1d] offset 1ms))"
                for name in GPU_MEMORY_METRICS
            }
        )
        peaks: dict[tuple[str, str], float] = {}
        for series in self._client.query(query, day + _DAY):
            try:
                used = tables.parse_number(series.samples[-1][1]) * GPU_MEMORY_METRICS[series.labels[STATISTIC_LABEL]]
            except (ValueError, KeyError) as error:
                raise MetricsResponseError(
                    f"cluster {self._cluster}: the response about GPU memory is invalid: {error}"
                ) from error
            pod = labeled_pod(series.labels)
            if all(pod) and used.is_finite() and 0 <= used <= MAX_GPU_MEMORY_MIB * _MIB:
                peaks[pod] = max(peaks.get(pod, 0.0), float(used))
        return peaks
