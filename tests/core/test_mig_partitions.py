"""What claims can have of a GPU with MIG partitions, compared with figures computed by hand."""

from fractions import Fraction
from itertools import combinations

import pytest

from gpucost.core.metering.gpu_models import MIG_GPUS, Partition, claimable_share, partition_of, profile_share
from gpucost_devstack.fleet import hardware

A100 = "NVIDIA A100-SXM4-40GB"


def partitions(text: str) -> set[Partition]:
    """Partitions of one GPU, from `3g.20gb@0 1g.5gb@6`."""
    return {Partition("gpu-0", profile, int(start)) for profile, start in (part.split("@") for part in text.split())}


@pytest.mark.parametrize(
    ("held", "share"),
    [
        ("", Fraction(1)),
        ("7g.40gb@0", Fraction(0)),
        ("3g.20gb@0", Fraction(1, 2)),
        ("4g.20gb@0", Fraction(3, 7)),
        # Of the slices 4, 5 and 7 that remain, 2g takes 4 and 5. No profile starts at 7, so 1/14 of the GPU is left.
        ("3g.20gb@0 1g.5gb@6", Fraction(2, 7)),
        ("3g.20gb@0 2g.10gb@4", Fraction(3, 14)),  # 1g with double memory takes slices 6 and 7: 1/4, more than is left
        ("3g.20gb@0 2g.10gb@4 1g.5gb@6", Fraction(0)),
        ("2g.10gb@0 2g.10gb@2 2g.10gb@4 1g.5gb@6", Fraction(0)),
    ],
)
def test_claimable_share_is_that_of_the_largest_further_partitions(held: str, share: Fraction) -> None:
    assert claimable_share(A100, partitions(held)) == share


def test_only_partitions_in_slices_can_be_claimed() -> None:
    offered = partitions("2g.10gb@0 2g.10gb@2 2g.10gb@4")
    assert claimable_share(A100, set(), offered) == Fraction(6, 7)
    assert claimable_share(A100, partitions("2g.10gb@2"), offered) == Fraction(4, 7)
    assert claimable_share(A100, set(), set()) == 0


def test_partitions_of_unknown_profiles_or_models_leave_the_share_unknown() -> None:
    assert claimable_share("NVIDIA L4", set()) is None
    assert claimable_share(A100, {Partition("gpu-0", "5g.25gb", 0)}) is None


@pytest.mark.parametrize("model", ["a100-40", "a100-80", "h100", "h200", "b200"])
def test_partitions_lie_where_nvidia_smi_lists_them(model: str) -> None:
    """The fleet has the output of `nvidia-smi mig -lgipp`; two partitions can exist together if no slice is in both."""
    dcgm, *_ = hardware.MODELS[model]
    slices_of = hardware.placements(model)
    for (first, first_slices), (second, second_slices) in combinations(slices_of.items(), 2):
        share = claimable_share(dcgm, {Partition("gpu-0", *first)}, {Partition("gpu-0", *second)})
        assert bool(share) == (not first_slices & second_slices), (first, second)


def test_claims_hold_and_can_have_no_more_than_a_gpu() -> None:
    for gpu in MIG_GPUS:
        model = " ".join(gpu.model_name_parts)
        for profile in gpu.memory_slices_by_profile:
            for start in range(gpu.memory_slices):
                claimable = claimable_share(model, {Partition("gpu-0", profile, start)})
                if claimable is not None:
                    assert 0 <= claimable <= 1 - (profile_share(profile, model) or 0)


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("gpu-0-mig-1g12gb-19-0", Partition("gpu-0", "1g.12gb", 0)),
        ("gpu-11-mig-1g5gb-me-20-4", Partition("gpu-11", "1g.5gb", 4)),
        ("gpu-1-mig-7g40gb-0-0", Partition("gpu-1", "7g.40gb", 0)),
        ("gpu-0", None),
        ("gpu-vfio-0", None),
        ("", None),
    ],
)
def test_device_names_describe_partitions(name: str, partition: Partition | None) -> None:
    assert partition_of(name) == partition
