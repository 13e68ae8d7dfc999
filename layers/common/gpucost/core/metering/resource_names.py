"""Names of Kubernetes resources as kube-state-metrics writes them: GPUs that metering knows, and what is no GPU."""

import re

from gpucost.core.metering.accelerators import ACCELERATORS

GPU_RESOURCES = "|".join(
    (
        "nvidia_com_gpu|nvidia_com_gpu_shared|nvidia_com_mig_.+",
        *(accelerator.resource_pattern for accelerator in ACCELERATORS),
    )
)
"""A regular expression of the resources whose GPUs are known."""
EXTENDED_RESOURCES = "[^_]+_[^_]+_.+"
"""A regular expression of resources with a domain."""
NO_GPUS = (
    "(hugepages|attachable_volumes|vpc_amazonaws_com|aws_ec2_nitro|smarter_devices|devices_kubevirt_io|github_com|rdma"
    "|mellanox_com|openshift_io|sgx_intel_com|qat_intel_com|intel_com|xilinx_com)_.+"
    "|(nvidia_com_gpu|volcano_sh_vgpu_)(cores|mem|memory|mem_percentage|memory_percentage)|nvidia_com_priority"
    "|nvidia_com_(hostdev|rdma|mlnx|sriov).*"
)
"""A regular expression of resources with a domain that are no GPUs, or only a part of what other resources are."""
_NAMES_OF_GPUS = re.compile("gpu|nvidia|cuda|accelerator|^amd_com|habana|gaudi|neuron", re.IGNORECASE)


def exported_resource(name: str) -> str:
    """Return a resource's name as kube-state-metrics writes it: `nvidia.com/gpu` → `nvidia_com_gpu`."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def may_name_gpus(resource: str) -> bool:
    """Whether a resource that metering does not know may be GPUs, by its name."""
    return _NAMES_OF_GPUS.search(resource) is not None
