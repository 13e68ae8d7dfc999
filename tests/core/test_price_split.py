"""Split policies match the published examples of their origins."""

import gzip
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import moto
import pytest

from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.pricing.prices import SPLIT_POLICIES, InstanceShape, custom_policy
from gpucost.pipeline.pricing import BUILT_IN_SHAPES

P5 = InstanceShape("p5.48xlarge", 8, 192, 2048 * 1024)
P4D = InstanceShape("p4d.24xlarge", 8, 96, 1152 * 1024)
G5 = InstanceShape("g5.xlarge", 1, 4, 16 * 1024)
P3 = InstanceShape("p3.16xlarge", 8, 64, 488 * 1024)


@pytest.mark.parametrize(
    ("policy", "shape", "percent"),
    [
        # By hand: p5 with scad is 72 / (72 + 172.8 + 204.8); with opencost 7.6 / (7.6 + 6.069312 + 8.677376).
        ("gpu-bears-all", P5, "100.0"),
        ("scad", P5, "16.0"),
        ("opencost", P5, "34.0"),
        ("datadog", P5, "95.0"),
        ("scad", P4D, "26.3"),
        ("opencost", P4D, "49.0"),
        ("scad", G5, "63.4"),
        ("opencost", G5, "83.0"),
        # AWS's example of Split Cost Allocation Data: of $10 of a p3.16xlarge, each of the eight GPUs bears $0.504.
        ("scad", P3, "40.4"),
    ],
)
def test_gpu_part_of_split_policies(policy: str, shape: InstanceShape, percent: str) -> None:
    part = SPLIT_POLICIES[policy].gpu_part_of(shape)
    assert part is not None
    assert f"{float(100 * part):.1f}" == percent


def test_unknown_instance_type_has_gpu_part_only_if_policy_needs_no_shape() -> None:
    assert SPLIT_POLICIES["gpu-bears-all"].gpu_part_of(None) == 1
    assert SPLIT_POLICIES["datadog"].gpu_part_of(None) == Fraction(95, 100)
    assert SPLIT_POLICIES["scad"].gpu_part_of(None) is None


def test_custom_weights() -> None:
    policy = custom_policy(Decimal(30), Decimal(1), Decimal("0.5"))
    assert policy.gpu_part_of(G5) == Fraction(30, 30 + 4 + 8)
    assert policy.gpu_part_of(InstanceShape("m7i.large", 0, 2, 8192)) == 0


def test_built_in_shapes_match_ec2() -> None:
    """moto has EC2's responses of DescribeInstanceTypes, except for a few old and new types."""
    instance_types = json.loads(
        gzip.decompress((Path(moto.__file__).parent / "ec2/resources/instance_types.json.gz").read_bytes())
    )
    compared = 0
    for name, shape in BUILT_IN_SHAPES.items():
        if name in instance_types:
            compared += 1
            shape_of_ec2 = (
                instance_types[name]["VCpuInfo"]["DefaultVCpus"],
                instance_types[name]["MemoryInfo"]["SizeInMiB"],
            )
            assert (shape.vcpus, shape.memory_mib) == shape_of_ec2, name
    assert compared > 70
    assert BUILT_IN_SHAPES.keys() == GPUS_OF_INSTANCE.keys() | NEURON_OF_INSTANCE.keys()


def test_catalog_has_all_instance_types_with_gpus() -> None:
    instance_types = json.loads(
        gzip.decompress((Path(moto.__file__).parent / "ec2/resources/instance_types.json.gz").read_bytes())
    )
    for name, instance_type in instance_types.items():
        gpus = [gpu for gpu in instance_type.get("GpuInfo", {}).get("Gpus", []) if gpu["Manufacturer"] == "NVIDIA"]
        if count := sum(gpu["LogicalGpuCount"] * Fraction(str(gpu["GpuPartitionSize"])) for gpu in gpus):
            assert GPUS_OF_INSTANCE.get(name) == count, name
