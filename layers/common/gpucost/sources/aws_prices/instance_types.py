"""GPUs, vCPUs and memory of EC2 instance types."""

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Any

from gpucost.core.decimals import parse_decimal
from gpucost.core.pricing.price_split import InstanceShape
from gpucost.sources.aws_prices.aws_requests import batches, map_aws_errors


class Ec2InstanceTypes:
    """Reads instance types with EC2's DescribeInstanceTypes.

    Args:
        clients: returns a client of a service in a region.
    """

    def __init__(self, clients: Callable[[str, str], Any]) -> None:
        self._clients = clients

    def fetch(self, region: str, instance_types: Collection[str]) -> list[InstanceShape]:
        """The shapes of instance types, as far as the region has them.

        Raises:
            SourceError: the request failed or was refused.
        """
        shapes = []
        with map_aws_errors("ec2:DescribeInstanceTypes"):
            pages = self._clients("ec2", region).get_paginator("describe_instance_types")
            for types in batches(instance_types):
                # A filter ignores types that the region does not have. As a parameter, they would fail the request.
                for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": types}]):
                    shapes += [_shape(instance_type) for instance_type in page["InstanceTypes"]]
        return sorted(shapes, key=lambda shape: shape.instance_type)


def _gpu_count(device: Mapping[str, Any]) -> Fraction:
    """The number of physical GPUs. For an instance with a fraction of a GPU, `Count` is 0."""
    if "LogicalGpuCount" in device:
        return int(device["LogicalGpuCount"]) * Fraction(parse_decimal(str(device.get("GpuPartitionSize", 1))))
    return Fraction(int(device["Count"]))


def _shape(instance_type: Mapping[str, Any]) -> InstanceShape:
    """Parse an instance type. Count Inferentia once: AWS lists it as an inference accelerator and a Neuron device."""
    lists = (
        instance_type.get("GpuInfo", {}).get("Gpus", ()),
        instance_type.get("NeuronInfo", {}).get("NeuronDevices", ()),
        instance_type.get("InferenceAcceleratorInfo", {}).get("Accelerators", ()),
    )
    counts = [sum((_gpu_count(device) for device in devices), Fraction(0)) for devices in lists]
    return InstanceShape(
        instance_type=instance_type["InstanceType"],
        gpus=next((int(count) if count.denominator == 1 else count for count in counts if count), 0),
        vcpus=int(instance_type["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(instance_type["MemoryInfo"]["SizeInMiB"]),
    )
