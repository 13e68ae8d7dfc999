"""Usage: the result of metering an hour. It has the GPU time that pods held and used, and that no pod held.

Amounts are exact `Fraction`s of physical-GPU milliseconds; `gpucost.core.pricing.rating` adds prices and rounds.
"""

from datetime import datetime
from fractions import Fraction
from functools import cached_property, lru_cache

from msgspec import Struct
from msgspec.structs import astuple, replace

from gpucost.core.hour_record import Coverage, UtilizationSource
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode, GpuShare
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.core.metering.observations import PodObservation

_reduced = lru_cache(maxsize=1024)(Fraction)
"""A fraction in lowest terms. Many pods hold the same GPU time."""


class Holding(Struct, frozen=True, dict=True):
    """Units of one GPU resource that one pod held in the hour."""

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

    def during(self, time: IntervalMs, share: GpuShare) -> "Holding":
        """Return the part in some of its time, with the share that the pod had then."""
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


class Use(Struct, frozen=True):
    """How what a pod held was used, as far as it was observed."""

    source: UtilizationSource = "none"
    utilization: Fraction | None = None
    """The mean of the observed time, 0 to 1."""
    observed_ms: Fraction | int = 0
    """The part of the running time in which the use was observed."""
    effective_gpu_ms: Fraction = Fraction(0)
    beyond_allocation_gpu_ms: Fraction = Fraction(0)
    """Use of a shared device beyond what was allocated; it adds neither cost nor effective use."""


UNMEASURED = Use()


class Energy(Struct, frozen=True):
    """What a pod's devices drew while it held them, as far as it was measured."""

    joules: Fraction
    gpu_ms: Fraction
    """The part of the GPU time held whose energy was measured."""

    def __add__(self, other: "Energy") -> "Energy":
        return Energy(self.joules + other.joules, self.gpu_ms + other.gpu_ms)


class PodUsage(Holding, frozen=True, dict=True):
    """What a pod held, its use and its energy: `held = effective + waste + unmeasured`."""

    use: Use = UNMEASURED
    energy: Energy | None = None
    """None where no exporter measured it."""

    @classmethod
    def of(cls, holding: Holding, use: Use = UNMEASURED, energy: Energy | None = None) -> "PodUsage":
        """Join what is known of a holding."""
        usage = cls(*astuple(holding), use=use, energy=energy)  # type: ignore[misc]  # the fields of a holding
        usage.__dict__.update(holding.__dict__)  # what is cached: the GPU time of most pods is known by now
        return usage

    @property
    def effective_gpu_ms(self) -> Fraction:
        """GPU time held and used."""
        return self.use.effective_gpu_ms

    @property
    def unmeasured_gpu_ms(self) -> Fraction | int:
        """GPU time held while running in which the use was not observed."""
        unseen = self.running.length - self.use.observed_ms
        return self.gpus * unseen if unseen > 0 else 0

    @property
    def waste_gpu_ms(self) -> Fraction:
        """GPU time held and not used, idle while running or before running."""
        measured = self.gpu_ms - self.use.effective_gpu_ms
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

    def with_unexplained_as_unobserved(self) -> "NodeUsage":
        """Count GPUs as unobserved that the node did not advertise: something unknown may hold them."""
        unobserved_gpu_ms = self.unobserved_gpu_ms + self.not_ready_gpu_ms + self.geometry_gpu_ms
        return replace(
            self, unobserved_gpu_ms=unobserved_gpu_ms, not_ready_gpu_ms=Fraction(0), geometry_gpu_ms=Fraction(0)
        )

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
