"""GPU models: their memory, their MIG profiles with the share of each, and the partitions of AMD GPUs.

Sources of the profiles: NVIDIA's MIG user guide, and `deployments/systemd/config-default.yaml` of NVIDIA/mig-parted, as
of v0.15.0 unless a comment names another version. Source of the partitions: AMD's guide to compute and memory
partitions (MI300 series: one to eight partitions).
"""

import re
from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from msgspec import Struct, field

from gpucost.core.metering.instance_types import CATALOG

_PROFILE_PATTERN = re.compile(r"^(?P<compute>[1-7])g\.(?P<memory>\d+)gb$")


class MigGpu(Struct, frozen=True):
    """How MIG divides one GPU model."""

    model_name_parts: tuple[str, ...]
    """Lower-case words that the model's name contains, all of them."""
    compute_slices: int
    memory_slices: int
    memory_slices_by_profile: dict[str, int]
    """Memory slices by profile."""
    memory_slices_by_alias: Mapping[str, int] = field(default_factory=dict)
    """The same for the names that some drivers use instead; a GPU never uses both."""

    @property
    def memory_slices_by_name(self) -> dict[str, int]:
        """Memory slices by profile, under any of its names."""
        return {**self.memory_slices_by_profile, **self.memory_slices_by_alias}


MIG_GPUS: tuple[MigGpu, ...] = (
    MigGpu(("a100", "40gb"), 7, 8, {"1g.5gb": 1, "1g.10gb": 2, "2g.10gb": 2, "3g.20gb": 4, "4g.20gb": 4, "7g.40gb": 8}),
    MigGpu(
        ("a100", "80gb"), 7, 8, {"1g.10gb": 1, "1g.20gb": 2, "2g.20gb": 2, "3g.40gb": 4, "4g.40gb": 4, "7g.80gb": 8}
    ),
    MigGpu(("h100", "nvl"), 7, 8, {"1g.12gb": 1, "1g.24gb": 2, "2g.24gb": 2, "3g.47gb": 4, "4g.47gb": 4, "7g.94gb": 8}),
    MigGpu(("h100",), 7, 8, {"1g.10gb": 1, "1g.20gb": 2, "2g.20gb": 2, "3g.40gb": 4, "4g.40gb": 4, "7g.80gb": 8}),
    MigGpu(("gh200",), 7, 8, {"1g.12gb": 1, "1g.24gb": 2, "2g.24gb": 2, "3g.48gb": 4, "4g.48gb": 4, "7g.96gb": 8}),
    MigGpu(("h200",), 7, 8, {"1g.18gb": 1, "1g.35gb": 2, "2g.35gb": 2, "3g.71gb": 4, "4g.71gb": 4, "7g.141gb": 8}),
    # Early drivers report 189 GB and slices of 24 (NVIDIA/gpu-operator#1303, mig-parted v0.12.0 to v0.12.2), later ones
    # 186 and 23 (NVIDIA/mig-parted#227, mig-parted since v0.12.3).
    MigGpu(
        ("gb200",),
        7,
        8,
        {"1g.23gb": 1, "1g.47gb": 2, "2g.47gb": 2, "3g.93gb": 4, "4g.93gb": 4, "7g.186gb": 8},
        {"1g.24gb": 1, "3g.95gb": 4, "4g.95gb": 4, "7g.189gb": 8},
    ),
    MigGpu(("gb300",), 7, 8, {"1g.35gb": 1, "1g.70gb": 2, "2g.70gb": 2, "3g.139gb": 4, "4g.139gb": 4, "7g.278gb": 8}),
    MigGpu(("b200",), 7, 8, {"1g.23gb": 1, "1g.45gb": 2, "2g.45gb": 2, "3g.90gb": 4, "4g.90gb": 4, "7g.180gb": 8}),
    MigGpu(("b300",), 7, 8, {"1g.34gb": 1, "1g.67gb": 2, "2g.67gb": 2, "3g.135gb": 4, "4g.135gb": 4, "7g.269gb": 8}),
    MigGpu(("a30",), 4, 4, {"1g.6gb": 1, "2g.12gb": 2, "4g.24gb": 4}),
    MigGpu(("rtx", "pro", "6000"), 4, 4, {"1g.24gb": 1, "2g.48gb": 2, "4g.96gb": 4}),
)

_PARTITIONS_PER_GPU = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4}
_COMPUTE_DIES = {"mi300a": 6, "mi300x": 8, "mi325x": 8, "mi350x": 8, "mi355x": 8}
"""Accelerator compute dies (XCD) of AMD GPUs. In mode CPX, each is a partition."""
USUAL_COMPUTE_DIES = 8


def partitions_per_gpu(partition: str, model: str) -> int | None:
    """Return into how many partitions a mode divides an AMD GPU.

    Args:
        partition: compute and memory mode, such as `cpx_nps4`; the memory mode does not matter.
        model: the GPU's name in any spelling.

    Returns:
        None for CPX on a model that is not in the catalog.
    """
    compute = partition.partition("_")[0]
    if compute in _PARTITIONS_PER_GPU:
        return _PARTITIONS_PER_GPU[compute]
    name = model.lower()
    return next((dies for part, dies in _COMPUTE_DIES.items() if part in name), None)


_BYTES_PER_MIB = 1024**2


def _nominal_gb(mib: int) -> int:
    """Return a GPU's memory as its data sheet has it: in GiB, or in GB if EC2's figure in MiB is no whole GiB."""
    return mib // 1024 if mib % 1024 == 0 else round(mib * _BYTES_PER_MIB / 10**9)


@cache
def _memory_without_mig() -> dict[str, int]:
    """Return the memory of GPUs by model: EC2's, except models of several sizes, and two from NVIDIA's data sheets."""
    sizes: dict[str, set[int]] = {"a10": {24}, "l40": {48}}
    for instance_type in CATALOG.values():
        if instance_type.manufacturer == "NVIDIA" and instance_type.devices >= 1 and instance_type.device_memory_mib:
            sizes.setdefault(instance_type.model.lower(), set()).add(_nominal_gb(instance_type.device_memory_mib))
    return {model: min(memory) for model, memory in sizes.items() if len(memory) == 1}


def memory_gb(model: str) -> int | None:
    """Return a GPU's nominal memory in GB; None for models that are not in the catalog.

    Args:
        model: the GPU's name in any spelling.
    """
    name = model.lower()
    gpu = next((gpu for gpu in MIG_GPUS if all(part in name for part in gpu.model_name_parts)), None)
    if gpu is not None:
        return max(
            int(match[2]) for profile in gpu.memory_slices_by_profile if (match := _PROFILE_PATTERN.match(profile))
        )
    words = re.findall(r"[a-z0-9]+", name)
    if "v100" in words:  # its name has its size
        return 32 if "32gb" in words else 16 if "16gb" in words else None
    memory = _memory_without_mig()
    return next((memory[word] for word in words if word in memory), None)


def profile_share(profile: str, model: str) -> Fraction | None:
    """Return the share of a physical GPU that a MIG profile takes: the larger of its compute and memory shares.

    Args:
        profile: `1g.5gb`; attributes such as `+me` do not change the share.
        model: the GPU's name in any spelling, or "" if unknown.

    Returns:
        None if the model does not have the profile, or if the model is unknown and the models' shares differ.
    """
    base = re.sub(r"(?:[+.-](?:me|gfx|all))+$", "", profile.lower())
    name = model.lower()
    gpu = next((gpu for gpu in MIG_GPUS if all(part in name for part in gpu.model_name_parts)), None)
    if gpu is not None:
        return _share_of_profile(base, gpu)
    shares = {share for gpu in MIG_GPUS if (share := _share_of_profile(base, gpu)) is not None}
    return shares.pop() if len(shares) == 1 else None


def compute_share(profile: str) -> Fraction | None:
    """Return a profile's share of the seven compute slices that most GPUs have, from its name alone."""
    match = re.match(r"([1-7])g\.", profile)
    return Fraction(int(match[1]), 7) if match else None


def _share_of_profile(profile: str, gpu: MigGpu) -> Fraction | None:
    match, memory = _PROFILE_PATTERN.match(profile), gpu.memory_slices_by_name.get(profile)
    if match is None or memory is None:
        return None
    return max(Fraction(int(match["compute"]), gpu.compute_slices), Fraction(memory, gpu.memory_slices))


# MIG partitions that a DRA driver offers: where they lie in a GPU, and what else of the GPU claims can have.

_NAME = re.compile(r"^(gpu-\d+)-mig-(\d+)g(\d+)gb(?:-[a-z-]+)?-\d+-(\d+)$")
"""`gpu-0-mig-1g5gb-19-4`: GPU, profile, number of the profile, first memory slice. Source: mig.go of
kubernetes-sigs/dra-driver-nvidia-gpu, August 2026 (0.5.0-dev)."""


class Partition(NamedTuple):
    """A MIG partition of a GPU, as a device's name in a ResourceSlice describes it."""

    gpu: str
    """The name of the whole GPU in the ResourceSlice, unique in its node: `gpu-0`."""
    profile: str
    start: int
    """Its first memory slice."""


class _Placement(NamedTuple):
    share: Fraction
    slices: frozenset[int]
    """Memory slices."""


def partition_of(name: str) -> Partition | None:
    """Return the partition that a device of a ResourceSlice is; None if it is a whole GPU or another device."""
    match = _NAME.match(name)
    return Partition(match[1], f"{match[2]}g.{match[3]}gb", int(match[4])) if match else None


def claimable_share(
    model: str, held: Collection[Partition], offered: Collection[Partition] | None = None
) -> Fraction | None:
    """Return the largest share of a GPU that further claims can have, at most what is not held.

    Args:
        model: of the GPU, in any spelling.
        held: the partitions of the GPU that claims hold.
        offered: the partitions in the node's ResourceSlices; None for all that the model has.

    Returns:
        None if a profile, or its place in the GPU, is unknown.
    """
    return _claimable_share(model, frozenset(held), None if offered is None else frozenset(offered))


@cache
def _claimable_share(model: str, held: frozenset[Partition], offered: frozenset[Partition] | None) -> Fraction | None:
    placements = _placements(model)
    of_held = {placements.get((partition.profile, partition.start)) for partition in held}
    taken_placements = [placement for placement in of_held if placement is not None]
    if not placements or None in of_held:
        return None
    taken = frozenset().union(*(placement.slices for placement in taken_placements))
    choices = [
        placement
        for (profile, start), placement in placements.items()
        if taken.isdisjoint(placement.slices)
        and (offered is None or any((other.profile, other.start) == (profile, start) for other in offered))
    ]
    rest = max(Fraction(0), 1 - sum((placement.share for placement in taken_placements), Fraction(0)))
    return min(rest, _largest_sum(choices))


def _largest_sum(placements: Collection[_Placement]) -> Fraction:
    """Return the largest sum of the shares of placements that do not overlap."""
    best_from: dict[int, Fraction] = {}
    for start in range(max((max(placement.slices) for placement in placements), default=-1), -1, -1):
        sums = [
            placement.share + best_from.get(max(placement.slices) + 1, Fraction(0))
            for placement in placements
            if min(placement.slices) == start
        ]
        best_from[start] = max([best_from.get(start + 1, Fraction(0)), *sums])
    return best_from.get(0, Fraction(0))


@cache
def _placements(model: str) -> dict[tuple[str, int], _Placement]:
    """Return where a model's partitions can lie, by profile and first memory slice.

    A partition starts at a multiple of its memory slices, and no more start than their compute slices allow. So it is
    in the output of `nvidia-smi mig -lgipp` of A100, H100 and A30.
    """
    name = model.lower()
    gpu = next((gpu for gpu in MIG_GPUS if all(part in name for part in gpu.model_name_parts)), None)
    if gpu is None:
        return {}
    placements: dict[tuple[str, int], _Placement] = {}
    for profile, size in gpu.memory_slices_by_name.items():
        share = profile_share(profile, model)
        count = min(gpu.memory_slices // size, gpu.compute_slices // int(profile.partition("g")[0]))
        for start in range(0, count * size, size):
            if share is not None:
                placements[profile, start] = _Placement(share, frozenset(range(start, start + size)))
    return placements
