"""Shapes of EC2's accelerated instance types, used by split policies until the price book has those from EC2."""

from gpucost.core.metering.gpu_models import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.pricing.price_split import InstanceShape

_MIB_PER_GIB = 1024
_G_SIZES = {"xlarge": (4, 16), "2xlarge": (8, 32), "4xlarge": (16, 64), "8xlarge": (32, 128), "16xlarge": (64, 256)}
_G_LARGE_SIZES = {"12xlarge": (48, 192), "24xlarge": (96, 384), "48xlarge": (192, 768)}
_G6E_SIZES = {size: (vcpus, 2 * gib) for size, (vcpus, gib) in {**_G_SIZES, **_G_LARGE_SIZES}.items()}

_FAMILIES: dict[str, dict[str, tuple[int, int]]] = {
    "p2": {"xlarge": (4, 61), "8xlarge": (32, 488), "16xlarge": (64, 732)},
    "p3": {"2xlarge": (8, 61), "8xlarge": (32, 244), "16xlarge": (64, 488)},
    "p3dn": {"24xlarge": (96, 768)},
    "p4d": {"24xlarge": (96, 1152)},
    "p4de": {"24xlarge": (96, 1152)},
    "p5": {"4xlarge": (16, 256), "48xlarge": (192, 2048)},
    "p5e": {"48xlarge": (192, 2048)},
    "p5en": {"48xlarge": (192, 2048)},
    "p6-b200": {"48xlarge": (192, 2048)},
    "p6-b300": {"48xlarge": (192, 4096)},
    "p6e-gb200": {"36xlarge": (144, 960)},
    "g4dn": {**_G_SIZES, "12xlarge": (48, 192), "metal": (96, 384)},
    "g5": {**_G_SIZES, **_G_LARGE_SIZES},
    "g5g": {
        **{size: (vcpus, gib // 2) for size, (vcpus, gib) in _G_SIZES.items()},
        "metal": (64, 128),
    },
    "g6": {**_G_SIZES, **_G_LARGE_SIZES},
    "g6e": _G6E_SIZES,
    "gr6": {"4xlarge": (16, 128), "8xlarge": (32, 256)},
    "g6f": {"large": (2, 8), "xlarge": (4, 16), "2xlarge": (8, 32), "4xlarge": (16, 64)},
    "gr6f": {"4xlarge": (16, 128)},
    "g7": {
        "2xlarge": (8, 32),
        "4xlarge": (16, 64),
        "8xlarge": (32, 128),
        **_G_LARGE_SIZES,
    },
    "g7e": {
        "2xlarge": (8, 64),
        "4xlarge": (16, 128),
        "8xlarge": (32, 256),
        "12xlarge": (48, 512),
        "24xlarge": (96, 1024),
        "48xlarge": (192, 2048),
    },
    "inf1": {"xlarge": (4, 8), "2xlarge": (8, 16), "6xlarge": (24, 48), "24xlarge": (96, 192)},
    "inf2": {"xlarge": (4, 16), "8xlarge": (32, 128), "24xlarge": (96, 384), "48xlarge": (192, 768)},
    "trn1": {"2xlarge": (8, 32), "32xlarge": (128, 512)},
    "trn1n": {"32xlarge": (128, 512)},
    "trn2": {"3xlarge": (12, 128), "48xlarge": (192, 2048)},
    "trn2u": {"48xlarge": (192, 2048)},
}
"""vCPUs and GiB by size (AWS, instance type specifications of accelerated computing)."""


def _shape(instance_type: str, vcpus: int, gib: int) -> InstanceShape:
    gpus = GPUS_OF_INSTANCE.get(instance_type) or NEURON_OF_INSTANCE[instance_type][0]
    return InstanceShape(instance_type, gpus, vcpus, gib * _MIB_PER_GIB)


BUILT_IN_SHAPES: dict[str, InstanceShape] = {
    f"{family}.{size}": _shape(f"{family}.{size}", vcpus, gib)
    for family, sizes in _FAMILIES.items()
    for size, (vcpus, gib) in sizes.items()
}
