"""The table of accelerator vendors: how their devices are known, measured and checked."""

from collections.abc import Mapping
from typing import NamedTuple

from authoring.reference.markdown import code, table
from gpucost.core.metering.accelerators import ACCELERATORS, NVIDIA

HEADER = ("Vendor", "Resources", "DRA driver", "Exporter", "Versions", "Measured", "Not measured", "Second witness")


class Measurement(NamedTuple):
    """What an exporter measures, in words."""

    versions: str
    measured: str
    unmeasured: str
    witness: str = "twice the power of the lowest hour of the day"
    """What contradicts a signal that is stuck at 0."""


MEASUREMENTS: Mapping[str, Measurement] = {
    NVIDIA: Measurement(
        "3.1.3 to 4.9.0",
        "GPUs, MIG devices, processes on shared GPUs; energy, memory",
        "GPUs through `nvidia.com/gpu.shared` and other names, unless `NVIDIA_RESOURCE_NAMES` has them; "
        "MIG devices by `DCGM_FI_DEV_GPU_UTIL`",
        "another utilization signal, or twice the power of the lowest hour of the day",
    ),
    "neuron": Measurement(
        "Neuron 2.23 or later for labels of pods",
        "NeuronCores, physical or logical, in use",
        "pods on a part of a node without labels of pods; devices of claims; energy",
        "none: it reports no power, and counts of executions do not say how long they took; a 0 is believed",
    ),
    "amd": Measurement(
        "1.0 or later; 1.4 or later for partitions",
        "GPUs and their partitions",
        "Radeon Pro V520 (g4ad); energy",
        "twice the power of the lowest hour of the day; none in guests of a hypervisor, which report no power",
    ),
    "gaudi": Measurement("1.23 or later", "devices", "energy"),
    "intel": Measurement("2.0 or later", "GPUs", "pods on a part of a node, as it names no pods; tiles; energy"),
}
"""By vendor; a test compares the vendors with the catalog."""


def vendors_table() -> str:
    """Render the table."""
    nvidia = ("NVIDIA", code("nvidia.com/gpu, nvidia.com/mig-…"), code("gpu.nvidia.com"), "dcgm-exporter")
    rows = [(*nvidia, *MEASUREMENTS[NVIDIA])]
    rows += [
        (
            accelerator.display_name,
            code(f"{accelerator.domain}/{accelerator.resources}"),
            code(accelerator.dra_driver),
            accelerator.exporter,
            *MEASUREMENTS[accelerator.vendor],
        )
        for accelerator in ACCELERATORS
    ]
    return table(HEADER, rows)
