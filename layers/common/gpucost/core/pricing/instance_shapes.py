"""Shapes of EC2's accelerated instance types, used by split policies until the price book has those from EC2."""

from gpucost.core.metering.instance_types import CATALOG, GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.pricing.price_split import InstanceShape

BUILT_IN_SHAPES: dict[str, InstanceShape] = {
    name: InstanceShape(
        name,
        GPUS_OF_INSTANCE.get(name) or NEURON_OF_INSTANCE[name][0],
        instance_type.vcpus,
        instance_type.memory_mib,
    )
    for name, instance_type in CATALOG.items()
    if name in GPUS_OF_INSTANCE or name in NEURON_OF_INSTANCE
}
