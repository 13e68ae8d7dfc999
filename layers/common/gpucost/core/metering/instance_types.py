"""Accelerators of EC2 instance types, from the generated table (`python -m authoring.hardware`)."""

import re
from fractions import Fraction
from statistics import mode
from typing import Any, NamedTuple, TypeVar

from gpucost.core.decimals import parse_fraction
from gpucost.core.metering.instance_type_table import DAYS, INSTANCE_TYPES


class InstanceType(NamedTuple):
    """The accelerators of an EC2 instance type, and its size."""

    manufacturer: str
    """As in EC2: `NVIDIA`, `AMD`, `AWS` (Neuron devices), `Habana`, `Qualcomm`."""
    model: str
    """As in EC2, such as `A100`; not DCGM's name."""
    devices: Fraction
    """Physical GPUs or Neuron devices; less than 1 for a part of a GPU (EC2's `GpuPartitionSize`)."""
    device_memory_mib: int
    """Memory of a device, or of the part; 0 if the source does not have it."""
    cores_per_device: int
    """NeuronCores; 0 for GPUs."""
    vcpus: int
    memory_mib: int

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> "InstanceType":
        """Read a row of the table."""
        manufacturer, model, devices, *numbers, _ = row
        return cls(manufacturer, model, parse_fraction(devices), *numbers)

    def as_row(self) -> tuple[Any, ...]:
        """Return the row of the table, without the number of its source."""
        return self.manufacturer, self.model, str(self.devices), *self[3:]


CATALOG: dict[str, InstanceType] = {name: InstanceType.from_row(row) for name, row in INSTANCE_TYPES.items()}
"""All instance types with accelerators. AMD's and Habana's count as advertised by nodes. Qualcomm's are not metered."""
CATALOG_DAY = DAYS[mode(row[-1] for row in INSTANCE_TYPES.values())]
"""The day of the source that has most of the types (YYYY-MM-DD)."""

_LOGICAL_CORE_SIZE = {"Trainium2": 2}
"""Physical cores of a logical NeuronCore, by model, unless a node is configured otherwise (LNC)."""
_Hardware = TypeVar("_Hardware")
AWS_PREFIX = "aws://"
"""The beginning of the provider ids of nodes on AWS."""
_ZONE_ID = re.compile(r"^[a-z]{2,4}\d-az\d+$")
SAGEMAKER_PREFIX = "ml."
"""SageMaker HyperPod's type `ml.X` has the hardware of EC2's X, and a price of its own."""


def _with_sagemaker(types: dict[str, _Hardware]) -> dict[str, _Hardware]:
    return types | {f"{SAGEMAKER_PREFIX}{name}": hardware for name, hardware in types.items()}


GPUS_OF_INSTANCE: dict[str, int | Fraction] = _with_sagemaker(
    {
        name: int(instance_type.devices) if instance_type.devices >= 1 else instance_type.devices
        for name, instance_type in CATALOG.items()
        if instance_type.manufacturer == "NVIDIA"
    }
)
"""Physical NVIDIA GPUs per instance type of EC2 and SageMaker; a fraction for a part of a GPU."""
NEURON_OF_INSTANCE: dict[str, tuple[int, int]] = _with_sagemaker(
    {
        name: (
            int(instance_type.devices),
            instance_type.cores_per_device // _LOGICAL_CORE_SIZE.get(instance_type.model, 1),
        )
        for name, instance_type in CATALOG.items()
        if instance_type.cores_per_device
    }
)
"""Neuron devices, and the NeuronCores per device that nodes advertise by default, per instance type."""


def instance_id_of(provider_id: str) -> str:
    """Return the EC2 instance id in a node's provider id; its last part if there is none.

    EKS writes `aws:///us-east-2a/i-0123`, and HyperPod `aws:///use2-az1/sagemaker/cluster/hyperpod-CLUSTER-i-0123`.
    """
    name = provider_id.rpartition("/")[2]
    return f"i-{name.rpartition('-i-')[2]}" if name.startswith("hyperpod-") and "-i-" in name else name


def zone_of_provider_id(provider_id: str) -> tuple[str, str]:
    """Return the zone and the zone id in a node's provider id, such as `aws:///us-west-2a/i-0123`; "" for unknown."""
    if not provider_id.startswith(f"{AWS_PREFIX}/") or not instance_id_of(provider_id).startswith("i-"):
        return "", ""
    zone = provider_id.removeprefix(f"{AWS_PREFIX}/").partition("/")[0]
    return ("", zone) if _ZONE_ID.match(zone) else (zone, "")


def devices_of_instance(instance_type: str) -> int | Fraction:
    """Return the number of GPUs or Neuron devices of an instance type; 0 if the catalog does not have it."""
    return GPUS_OF_INSTANCE.get(instance_type) or NEURON_OF_INSTANCE.get(instance_type, (0, 0))[0]
