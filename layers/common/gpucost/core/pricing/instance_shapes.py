"""Shapes of EC2's accelerated instance types, used by split policies until the price book has those from EC2."""

from gpucost.core.metering.instance_types import CATALOG, GPUS_OF_INSTANCE, NEURON_OF_INSTANCE, SAGEMAKER_PREFIX
from gpucost.core.pricing.price_split import InstanceShape

BUILT_IN_SHAPES: dict[str, InstanceShape] = {
    name: InstanceShape(
        name,
        GPUS_OF_INSTANCE.get(name) or NEURON_OF_INSTANCE[name][0],
        CATALOG[name.removeprefix(SAGEMAKER_PREFIX)].vcpus,
        CATALOG[name.removeprefix(SAGEMAKER_PREFIX)].memory_mib,
    )
    for name in (*GPUS_OF_INSTANCE, *NEURON_OF_INSTANCE)
}
