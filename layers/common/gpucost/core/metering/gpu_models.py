"""Hardware catalog: MIG profiles, partitions of AMD GPUs, and the GPUs and Neuron devices of instance types.

Sources: NVIDIA's MIG user guide and mig-parted's `config-default.yaml` (profiles and how many fit), AMD's guide to
compute and memory partitions (MI300 series: one to eight partitions), AWS's accelerated computing instance tables and
the Neuron architecture pages (devices, cores per device).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

_PROFILE_PATTERN = re.compile(r"^(?P<compute>[1-7])g\.(?P<memory>\d+)gb$")


@dataclass(frozen=True, slots=True)
class MigGpu:
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
    # As in the guide and mig-parted's configuration for device 0x2941; some report 189 GB (NVIDIA/gpu-operator #1303).
    MigGpu(
        ("gb200",),
        7,
        8,
        {"1g.23gb": 1, "1g.47gb": 2, "2g.47gb": 2, "3g.93gb": 4, "4g.93gb": 4, "7g.186gb": 8},
        {"3g.95gb": 4, "4g.95gb": 4, "7g.189gb": 8},
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


_MEMORY_GB = {"k80": 12, "m60": 8, "t4": 16, "t4g": 16, "a10": 24, "a10g": 24, "l4": 24, "l40": 48, "l40s": 48}
"""GPUs without MIG, from NVIDIA's data sheets. The name of a V100 says whether it has 16 or 32 GB."""


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
    if "v100" in words:
        return 32 if "32gb" in words else 16 if "16gb" in words else None
    return next((_MEMORY_GB[word] for word in words if word in _MEMORY_GB), None)


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


_G_SINGLE_GPU_SIZES = {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 1}
_G_MULTI_GPU_SIZES = {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}

GPU_FRACTION_OF_INSTANCE: dict[str, Fraction] = {
    "g6f.large": Fraction(1, 8),
    "g6f.xlarge": Fraction(1, 8),
    "g6f.2xlarge": Fraction(1, 4),
    "g6f.4xlarge": Fraction(1, 2),
    "gr6f.4xlarge": Fraction(1, 2),
}
"""The fraction of a physical GPU that an instance type has (EC2's DescribeInstanceTypes: `GpuPartitionSize`)."""

_WHOLE_GPUS_OF_INSTANCE = {
    f"{family}.{size}": gpus
    for family, sizes in {
        "p2": {"xlarge": 1, "8xlarge": 8, "16xlarge": 16},
        "p3": {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8},
        "p3dn": {"24xlarge": 8},
        "p4d": {"24xlarge": 8},
        "p4de": {"24xlarge": 8},
        "p5": {"4xlarge": 1, "48xlarge": 8},
        "p5e": {"48xlarge": 8},
        "p5en": {"48xlarge": 8},
        "p6-b200": {"48xlarge": 8},
        "p6-b300": {"48xlarge": 8},
        "p6e-gb200": {"36xlarge": 4},
        "g4dn": _G_SINGLE_GPU_SIZES | {"12xlarge": 4, "metal": 8},
        "g5": _G_SINGLE_GPU_SIZES | _G_MULTI_GPU_SIZES,
        "g5g": {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 2, "metal": 2},
        "g6": _G_SINGLE_GPU_SIZES | _G_MULTI_GPU_SIZES,
        "g6e": _G_SINGLE_GPU_SIZES | _G_MULTI_GPU_SIZES,
        "gr6": {"4xlarge": 1, "8xlarge": 1},
        "g7": {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
        "g7e": {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
    }.items()
    for size, gpus in sizes.items()
}

GPUS_OF_INSTANCE: dict[str, int | Fraction] = {**_WHOLE_GPUS_OF_INSTANCE, **GPU_FRACTION_OF_INSTANCE}
"""Physical GPUs per EC2 instance type."""

NEURON_OF_INSTANCE: dict[str, tuple[int, int]] = {
    f"{family}.{size}": (devices, cores)
    for family, cores, sizes in (
        ("inf1", 4, {"xlarge": 1, "2xlarge": 1, "6xlarge": 4, "24xlarge": 16}),
        ("inf2", 2, {"xlarge": 1, "8xlarge": 1, "24xlarge": 6, "48xlarge": 12}),
        ("trn1", 2, {"2xlarge": 1, "32xlarge": 16}),
        ("trn1n", 2, {"32xlarge": 16}),
        ("trn2", 8, {"3xlarge": 1, "48xlarge": 16}),
        ("trn2u", 8, {"48xlarge": 16}),
    )
    for size, devices in sizes.items()
}
"""Neuron devices, and NeuronCores per device, per EC2 instance type."""
