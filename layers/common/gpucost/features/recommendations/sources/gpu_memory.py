"""Reads the GPU memory peaks of pods: one query per day, because the ledger does not hold memory.

`DCGM_FI_DEV_FB_USED` is in MiB (NVIDIA DCGM field 252). A day of 10,000 pods scraped every 30 seconds is 29 million
samples, 0.3 cents at AMP's price.
"""

from datetime import datetime, timedelta

from gpucost.core.errors import MetricsResponseError
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.connection import ClusterReader
from gpucost.sources.prometheus.devices import labeled_pod

_DAY = timedelta(days=1)
GPU_MEMORY_METRIC = "DCGM_FI_DEV_FB_USED"
_MIB = 2**20
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
        selector = self._queries.series_selector(GPU_MEMORY_METRIC)
        query = f"max by ({_LABELS}) (max_over_time({selector}[1d] offset 1ms))"
        peaks: dict[tuple[str, str], float] = {}
        for series in self._client.query(query, day + _DAY):
            try:
                mib = tables.parse_number(series.samples[-1][1])
            except ValueError as error:
                raise MetricsResponseError(
                    f"cluster {self._cluster}: the response about GPU memory is invalid: {error}"
                ) from error
            pod = labeled_pod(series.labels)
            if all(pod) and mib.is_finite() and 0 <= mib <= MAX_GPU_MEMORY_MIB:
                peaks[pod] = max(peaks.get(pod, 0.0), float(mib) * _MIB)
        return peaks
