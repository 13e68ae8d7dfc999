"""What a simulated cluster is: nodes with GPUs, pods with their lives, and how busy each keeps its devices."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

Use = Callable[[datetime], Decimal]
"""Utilization, 0 to 1, in the hour that starts at a time: constant within each UTC hour."""


@dataclass(frozen=True)
class Node:
    """A GPU node and what it advertises."""

    name: str
    instance_type: str
    gpus: int
    """Physical GPUs."""
    product: str
    """The label `nvidia.com/gpu.product`."""
    model: str
    """DCGM's `modelName`."""
    node_pool: str
    start: datetime
    end: datetime
    slices_per_gpu: int = 1
    """Above 1: MIG with strategy single, slices advertised as `nvidia.com/gpu`."""
    mig_profile: str = ""
    capacity_type: str = "on-demand"
    zone: str = "eu-central-1a"

    @property
    def units(self) -> int:
        """Advertised units of `nvidia.com/gpu`."""
        return self.gpus * self.slices_per_gpu


@dataclass(frozen=True)
class Pod:
    """A pod bound to a node from `start`, running from `running`, finished at `finished`, deleted at `end`."""

    namespace: str
    name: str
    uid: str
    node: Node
    units: int
    first_device: int
    """The units that it holds are numbered from here on its node."""
    start: datetime
    running: datetime
    end: datetime
    use: Use
    finished: datetime | None = None
    owners: tuple[tuple[str, str], ...] = ()
    """(kind, name) from the pod's owner upwards."""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def stops(self) -> datetime:
        """When it stops to hold its GPUs."""
        return min(self.finished or self.end, self.end)

    @property
    def gpus(self) -> Fraction:
        """Physical GPUs held."""
        return Fraction(self.units, self.node.slices_per_gpu)


@dataclass(frozen=True)
class Scenario:
    """A cluster over some time."""

    cluster: str
    start: datetime
    end: datetime
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    step_seconds: int = 60
