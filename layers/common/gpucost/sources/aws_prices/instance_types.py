"""EC2's catalogue of instance types: GPUs, vCPUs and memory; fulfils `price_ports.InstanceTypes`."""

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Any

from gpucost.core.pricing.price_split import InstanceShape
from gpucost.sources.aws_prices.pagination import batches, map_aws_errors


class Ec2InstanceTypes:
    """Fulfils `price_ports.InstanceTypes`.

    Args:
        clients: a boto3 client of a service in a region.
    """

    def __init__(self, clients: Callable[[str, str], Any]) -> None:
        self._clients = clients

    def fetch(self, region: str, instance_types: Collection[str]) -> list[InstanceShape]:
        """The shapes of those types that the region has.

        Raises:
            SourceError: AWS did not answer, or refused.
        """
        found = []
        with map_aws_errors("ec2:DescribeInstanceTypes"):
            pages = self._clients("ec2", region).get_paginator("describe_instance_types")
            for types in batches(instance_types):
                # A filter passes over types that the region does not have; as a parameter they fail the request.
                for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": types}]):
                    found += [_shape(one) for one in page["InstanceTypes"]]
        return sorted(found, key=lambda one: one.instance_type)


def _gpus(device: Mapping[str, Any]) -> Fraction:
    """Physical GPUs; of an instance with a fraction of one, `Count` is 0."""
    if "LogicalGpuCount" in device:
        return int(device["LogicalGpuCount"]) * Fraction(str(device.get("GpuPartitionSize", 1)))
    return Fraction(int(device["Count"]))


def _shape(told: Mapping[str, Any]) -> InstanceShape:
    """Inferentia is told twice, as an inference accelerator and as a Neuron device: it counts once."""
    lists = (
        told.get("GpuInfo", {}).get("Gpus", ()),
        told.get("NeuronInfo", {}).get("NeuronDevices", ()),
        told.get("InferenceAcceleratorInfo", {}).get("Accelerators", ()),
    )
    counts = [sum((_gpus(device) for device in devices), Fraction(0)) for devices in lists]
    return InstanceShape(
        instance_type=told["InstanceType"],
        gpus=next((int(count) if count.denominator == 1 else count for count in counts if count), 0),
        vcpus=int(told["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(told["MemoryInfo"]["SizeInMiB"]),
    )
