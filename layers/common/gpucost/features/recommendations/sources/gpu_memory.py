"""The most GPU memory that pods used on a day: one query a day, asked once, for the ledger does not keep memory.

`DCGM_FI_DEV_FB_USED` is in MiB (NVIDIA DCGM field 252). A day of 10,000 pods scraped every 30 seconds is 29 million
samples, 0.3 cents at AMP's price.
"""

from datetime import datetime, timedelta

from gpucost.core.errors import MetricsResponseError
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.connection import ClusterReader
from gpucost.sources.prometheus.devices import workload

_DAY = timedelta(days=1)
MEMORY = "DCGM_FI_DEV_FB_USED"
_MIB = 2**20
MOST_MIB = 10**8
"""Of one GPU: a hundred TiB; what says more, or is no number, says nothing."""
_LABELS = "namespace, pod, exported_namespace, exported_pod, pod_namespace, pod_name"


class PrometheusGpuMemory(ClusterReader):
    """Fulfils `advice_ports.MemoryReader` for one cluster."""

    def peaks(self, day: datetime) -> dict[tuple[str, str], float]:
        """The most bytes that each pod (namespace, name) used of any GPU on a UTC day; pods nobody saw are not there.

        Raises:
            MetricsUnavailableError, MetricsResponseError: as the client.
        """
        selector = self._queries.select(MEMORY)
        query = f"max by ({_LABELS}) (max_over_time({selector}[1d] offset 1ms))"
        found: dict[tuple[str, str], float] = {}
        for series in self._client.query(query, day + _DAY):
            try:
                value = tables.number(series.samples[-1][1])
            except ValueError as error:
                raise MetricsResponseError(f"cluster {self._cluster}: GPU memory cannot be read: {error}") from error
            pod = workload(series.labels)
            if all(pod) and value.is_finite() and 0 <= value <= MOST_MIB:
                found[pod] = max(found.get(pod, 0.0), float(value) * _MIB)
        return found
