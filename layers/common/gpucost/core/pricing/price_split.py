"""Split policies: which part of a node's price its GPUs bear; the host, its CPU and memory, bears the rest.

A policy weighs one GPU, one vCPU and one GiB of memory against each other:

    GPU part = gpus × w_gpu / (gpus × w_gpu + vcpus × w_vcpu + gib × w_gib)
"""

from decimal import Decimal
from fractions import Fraction

from msgspec import Struct

from gpucost.core.decimals import parse_decimal


class InstanceShape(Struct, frozen=True):
    """The hardware of an EC2 instance type (`DescribeInstanceTypes`)."""

    instance_type: str
    gpus: int | Fraction
    """Physical GPUs, or Neuron devices."""
    vcpus: int
    memory_mib: int


class SplitPolicy(Struct, frozen=True):
    """A named rule to split a node's price.

    It has either `weights` per unit, or a `gpu_part` that does not depend on the instance's shape.
    """

    name: str
    weights: tuple[Fraction, Fraction, Fraction] | None = None
    """The weights of one GPU, one vCPU and one GiB."""
    gpu_part: Fraction | None = None

    @property
    def needs_shape(self) -> bool:
        """Whether the policy needs the instance type's shape."""
        return self.gpu_part is None

    def gpu_part_of(self, shape: InstanceShape | None) -> Fraction | None:
        """Return the GPUs' part of the node's price, 0 to 1; None if the policy needs the shape and it is unknown."""
        if self.weights is None:
            return self.gpu_part
        if shape is None:
            return None
        gpu, vcpu, gib = self.weights
        gpus = gpu * shape.gpus
        host = vcpu * shape.vcpus + gib * Fraction(shape.memory_mib, 1024)
        return gpus / (gpus + host) if gpus + host else None


def _weights(gpu: str, vcpu: str, gib: str) -> tuple[Fraction, Fraction, Fraction]:
    return Fraction(parse_decimal(gpu)), Fraction(parse_decimal(vcpu)), Fraction(parse_decimal(gib))


SPLIT_POLICIES: dict[str, SplitPolicy] = {
    policy.name: policy
    for policy in (
        SplitPolicy("gpu-bears-all", gpu_part=Fraction(1)),
        SplitPolicy("scad", weights=_weights("9", "0.9", "0.1")),
        SplitPolicy("opencost", weights=_weights("0.95", "0.031611", "0.004237")),
        SplitPolicy("datadog", gpu_part=Fraction(95, 100)),
    )
}
"""`gpu-bears-all`: tainted GPU nodes exist for their GPUs. `scad`: AWS Split Cost Allocation Data (accelerators to
CPU and memory 9 : 1, CPU to memory 9 : 1). `opencost`: the default prices of its configs/aws.json. `datadog`: 95% GPU,
3% CPU, 2% memory of every node."""


def custom_policy(gpu: Decimal, vcpu: Decimal, gib: Decimal) -> SplitPolicy:
    """Return a policy with custom weights; that of the GPU must be positive, and none negative."""
    return SplitPolicy("own", weights=(Fraction(gpu), Fraction(vcpu), Fraction(gib)))
