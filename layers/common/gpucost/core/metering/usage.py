"""Usage: the result of metering an hour. It has the GPU time that pods held and used, and that no pod held.

Amounts are exact `Fraction`s of physical-GPU milliseconds; `gpucost.core.pricing.rating` adds prices and rounds.
"""

from datetime import datetime
from fractions import Fraction
from functools import cached_property, lru_cache

from msgspec import Struct
from msgspec.structs import replace

from gpucost.core.hour_record import Coverage, UtilizationSource
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode, GpuShare
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.core.metering.observations import PodObservation

_reduced = lru_cache(maxsize=1024)(Fraction)
"""A fraction in lowest terms. Many pods hold the same GPU time."""


class PodUsage(Struct, dict=True):
    """Units of one GPU resource that one pod held in the hour, and their use: `held = effective + waste + unmeasured`.

    It is made when a pod is known to hold GPUs, and completed by `set_use` when their use is measured.
    """

    pod: PodObservation
    node: GpuNode
    """The node's state during the pod's time."""
    resource: str
    units: int
    share: GpuShare
    held: IntervalMs
    """Clipped to the hour and to the time in which the node existed."""
    running: IntervalMs
    """The part of `held` in which the pod ran; the rest is start-up (image pull)."""
    last_sample_ms: int
    """The pod's last sample; it may have ended at any time after it."""
    first_sample_ms: int = 0
    """The pod's first sample, even if before the hour."""
    utilization_source: UtilizationSource = "none"
    utilization: Fraction | None = None
    """The mean of the observed time, 0 to 1."""
    observed_ms: Fraction | int = 0
    """The part of the running time in which the use was observed."""
    effective_gpu_ms: Fraction = Fraction(0)
    used_beyond_allocation_gpu_ms: Fraction = Fraction(0)
    """Use of a shared device beyond what was allocated; it adds neither cost nor effective use."""
    energy_joules: Fraction | None = None
    """What its devices drew while it held them, as far as it was measured; None where it was not."""
    energy_gpu_ms: Fraction = Fraction(0)
    """The part of `gpu_ms` whose energy was measured."""

    def add_energy(self, joules: Fraction, gpu_ms: Fraction) -> None:
        """Add the measured energy of a part of what is held."""
        self.energy_joules = (self.energy_joules or 0) + joules
        self.energy_gpu_ms += gpu_ms

    def set_use(
        self,
        source: UtilizationSource,
        utilization: Fraction | None,
        observed_ms: Fraction | int,
        used_gpu_ms: Fraction,
        used_beyond_allocation_gpu_ms: Fraction = Fraction(0),
    ) -> None:
        """Record the measured use; what is used beyond what is held does not count as effective.

        Only what it holds then counts as held, so shares are scaled and limited before.
        """
        self.utilization_source = source
        self.utilization = utilization
        self.observed_ms = observed_ms
        self.effective_gpu_ms = min(used_gpu_ms, self.gpu_ms)
        self.used_beyond_allocation_gpu_ms = used_beyond_allocation_gpu_ms

    def during(self, time: IntervalMs, share: GpuShare) -> "PodUsage":
        """Return the part in some of its time, with the share that the pod had then; nothing is measured yet."""
        return replace(
            self,
            share=share,
            held=time,
            running=self.running.overlap(time),
            last_sample_ms=min(self.last_sample_ms, time.end),
            first_sample_ms=max(self.first_sample_ms, time.start),
        )

    @property
    def observed_running(self) -> IntervalMs:
        """The part of `running` up to the last sample."""
        return IntervalMs(self.running.start, min(self.running.end, max(self.last_sample_ms, self.running.start)))

    @property
    def gpus(self) -> Fraction:
        """Physical GPUs held."""
        return self.share.gpus_per_unit if self.units == 1 else self.units * self.share.gpus_per_unit

    @cached_property
    def gpu_ms(self) -> Fraction:
        """Physical-GPU milliseconds held."""
        gpus, denominator = self.gpus.as_integer_ratio()
        return _reduced(gpus * self.held.length, denominator)

    @property
    def unmeasured_gpu_ms(self) -> Fraction | int:
        """GPU time held while running in which the use was not observed."""
        unseen = self.running.length - self.observed_ms
        return self.gpus * unseen if unseen > 0 else 0

    @property
    def waste_gpu_ms(self) -> Fraction:
        """GPU time held and not used, idle while running or before running."""
        measured = self.gpu_ms - self.effective_gpu_ms
        unmeasured = self.unmeasured_gpu_ms
        return measured - unmeasured if unmeasured else measured


class NodeEnergy(Struct):
    """What a node's GPUs drew in the hour: `joules = energy of pods + idle + not attributed`."""

    joules: Fraction = Fraction(0)
    idle_joules: Fraction = Fraction(0)
    """Drawn by GPUs while no pod held any part of them."""
    measured_gpu_ms: int = 0
    """GPU time whose energy was measured."""


class NodeUsage(Struct):
    """A GPU node's hour: `held + unallocated + stranded + unobserved - excess = total`, in physical-GPU ms."""

    node: GpuNode
    present: IntervalMs
    total_gpu_ms: Fraction
    unallocated_gpu_ms: Fraction = Fraction(0)
    not_ready_gpu_ms: Fraction = Fraction(0)
    """Stranded because nothing was advertised: booting, a crashed device plugin, MIG being reconfigured."""
    geometry_gpu_ms: Fraction = Fraction(0)
    """Stranded because less was advertised than the physical GPUs."""
    unhealthy_gpu_ms: Fraction = Fraction(0)
    """Stranded because it was advertised but not allocatable."""
    unobserved_gpu_ms: Fraction = Fraction(0)
    excess_gpu_ms: Fraction = Fraction(0)
    """Held in excess of the physical GPUs: the metrics contradict each other."""
    domain_gpu_ms: Fraction = Fraction(0)
    """Stranded because fewer GPUs of its NVLink domain were free than the smallest job needs."""
    energy: NodeEnergy | None = None
    """The energy of its GPUs; None if it was not measured."""

    @property
    def provider_id(self) -> str:
        """The provider id of the node."""
        return self.node.provider_id

    @property
    def gpus(self) -> Fraction:
        """Physical GPUs."""
        length = self.present.length
        return self.total_gpu_ms / length if length else Fraction(self.node.physical_gpus or 0)

    def mark_unexplained_as_unobserved(self) -> None:
        """Count GPUs as unobserved that the node did not advertise: something unknown may hold them."""
        self.unobserved_gpu_ms += self.not_ready_gpu_ms + self.geometry_gpu_ms
        self.not_ready_gpu_ms = self.geometry_gpu_ms = Fraction(0)

    @property
    def stranded_gpu_ms(self) -> Fraction:
        """GPU time that no pod could hold."""
        return self.not_ready_gpu_ms + self.geometry_gpu_ms + self.unhealthy_gpu_ms + self.domain_gpu_ms


class Usage(Struct, frozen=True):
    """A cluster-hour, metered."""

    cluster: str
    hour: datetime
    coverage: Coverage
    pods: tuple[PodUsage, ...]
    nodes: tuple[NodeUsage, ...] | None
    """None if the capacity of any node on which GPUs were held is unknown."""
    notes: tuple[str, ...]
    served: tuple[ServedTokens, ...] = ()
    """What inference servers processed; empty where no counters are read."""
