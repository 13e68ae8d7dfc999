"""GPU models, MIG profiles and instance types from NVIDIA's and AWS's tables. Shares no code with `gpucost`."""

from fractions import Fraction

MODELS = {
    "a100-40": ("NVIDIA A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", "p4d.24xlarge", 8),
    "a100-80": ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", "p4de.24xlarge", 8),
    "h100": ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3", "p5.48xlarge", 8),
    "h100-one": ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3", "p5.4xlarge", 1),
    "h200": ("NVIDIA H200", "NVIDIA-H200", "p5en.48xlarge", 8),
    "b200": ("NVIDIA B200", "NVIDIA-B200", "p6-b200.48xlarge", 8),
    "gb200": ("NVIDIA GB200", "NVIDIA-GB200", "p6e-gb200.36xlarge", 4),
    "l4-eighth": ("NVIDIA L4", "NVIDIA-L4", "g6f.xlarge", 1),
    "l4-quarter": ("NVIDIA L4", "NVIDIA-L4", "g6f.2xlarge", 1),
    "l4-half": ("NVIDIA L4", "NVIDIA-L4", "gr6f.4xlarge", 1),
    "a30": ("NVIDIA A30", "NVIDIA-A30", "", 2),
    "a10g": ("NVIDIA A10G", "NVIDIA-A10G", "g5.12xlarge", 4),
    "a10g-one": ("NVIDIA A10G", "NVIDIA-A10G", "g5.xlarge", 1),
    "l4": ("NVIDIA L4", "NVIDIA-L4", "g6.12xlarge", 4),
    "t4": ("Tesla T4", "Tesla-T4", "g4dn.xlarge", 1),
    "t4-four": ("Tesla T4", "Tesla-T4", "g4dn.12xlarge", 4),
}
"""DCGM's model name, the product label, an instance type ("" on premises) and its GPUs."""

PARTS_OF_A_GPU = {"l4-eighth": Fraction(1, 8), "l4-quarter": Fraction(1, 4), "l4-half": Fraction(1, 2)}
"""Instances whose one device is a part of a GPU."""

_SEVENTHS = Fraction(1, 7)
_PROFILE_SHARES: dict[str, dict[str, Fraction]] = {
    "a100-40": {
        "1g.5gb": _SEVENTHS,
        "1g.10gb": Fraction(1, 4),
        "2g.10gb": 2 * _SEVENTHS,
        "3g.20gb": Fraction(1, 2),
        "4g.20gb": 4 * _SEVENTHS,
        "7g.40gb": Fraction(1),
    },
    "a100-80": {
        "1g.10gb": _SEVENTHS,
        "1g.20gb": Fraction(1, 4),
        "2g.20gb": 2 * _SEVENTHS,
        "3g.40gb": Fraction(1, 2),
        "4g.40gb": 4 * _SEVENTHS,
        "7g.80gb": Fraction(1),
    },
    "h200": {
        "1g.18gb": _SEVENTHS,
        "1g.35gb": Fraction(1, 4),
        "2g.35gb": 2 * _SEVENTHS,
        "3g.71gb": Fraction(1, 2),
        "4g.71gb": 4 * _SEVENTHS,
        "7g.141gb": Fraction(1),
    },
    "b200": {
        "1g.23gb": _SEVENTHS,
        "1g.45gb": Fraction(1, 4),
        "2g.45gb": 2 * _SEVENTHS,
        "3g.90gb": Fraction(1, 2),
        "4g.90gb": 4 * _SEVENTHS,
        "7g.180gb": Fraction(1),
    },
    "a30": {"1g.6gb": Fraction(1, 4), "2g.12gb": Fraction(1, 2), "4g.24gb": Fraction(1)},
}
_PROFILE_SHARES["h100"] = _PROFILE_SHARES["h100-one"] = _PROFILE_SHARES["a100-80"]


def slice_of_gpu(model: str, profile: str) -> Fraction:
    """A MIG profile's share of a GPU: its share of compute or of memory, whichever is larger."""
    return _PROFILE_SHARES[model][profile.removesuffix("+me")]


_STARTS_BY_COMPUTE_SLICES = {1: range(7), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)}
"""The memory slices at which a profile can start, as `nvidia-smi mig -lgipp` prints them for A100 and H100 GPUs."""
_MEMORY_SLICES = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}


def placements(model: str) -> dict[tuple[str, int], frozenset[int]]:
    """The memory slices of every partition that a GPU with seven compute slices can have, by profile and first slice.

    A profile with one compute slice and the memory of two starts at slices 0, 2, 4 and 6.
    """
    taken: dict[tuple[str, int], frozenset[int]] = {}
    for profile, share in _PROFILE_SHARES[model].items():
        compute = int(profile[0])
        has_double_memory = compute == 1 and share == Fraction(1, 4)
        size = 2 if has_double_memory else _MEMORY_SLICES[compute]
        for start in (0, 2, 4, 6) if has_double_memory else _STARTS_BY_COMPUTE_SLICES[compute]:
            taken[profile, start] = frozenset(range(start, start + size))
    return taken


def resource_of_profile(profile: str) -> str:
    """The resource of a profile in the spelling of kube-state-metrics: `1g.5gb+me` is `nvidia_com_mig_1g_5gb_me`."""
    return "nvidia_com_mig_" + profile.replace(".", "_").replace("+", "_")
