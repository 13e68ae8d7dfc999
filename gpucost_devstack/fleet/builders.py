"""Builds nodes with GPUs (whole, MIG, time-slicing, MPS) or other accelerators, and the share of each unit."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from gpucost_devstack.fleet.hardware import MODELS, PARTS_OF_A_GPU, resource_of_profile, slice_of_gpu
from gpucost_devstack.fleet.scenario import FOREVER, GPU, Device, Geometry, Interval, Node

WHOLE_GPU = Fraction(1)
_MI300X_PARTITIONS = {"spx": 1, "dpx": 2, "qpx": 4, "cpx": 8}


def gpu_node(name: str, model: str, geometries: Sequence[Geometry] | Geometry, **overrides: object) -> Node:
    """A node with GPUs of a model, on its usual instance type."""
    dcgm, _, instance_type, gpus = MODELS[model]
    layouts = (geometries,) if isinstance(geometries, Geometry) else tuple(geometries)
    physical = PARTS_OF_A_GPU.get(model, gpus)
    attributes = {"instance_type": instance_type, "gpus": physical, "model": dcgm, **overrides}
    return Node(name=name, geometries=layouts, **attributes)  # type: ignore[arg-type]


def whole_gpus_geometry(model: str, lifetime: Interval = FOREVER, **overrides: object) -> Geometry:
    """Whole GPUs."""
    _, product, _, gpus = MODELS[model]
    labels = _gpu_feature_labels(product, gpus, replicas=1, strategy="none")
    share = PARTS_OF_A_GPU.get(model, WHOLE_GPU)
    return Geometry({GPU: gpus}, {GPU: share}, [Device(i) for i in range(gpus)], labels, lifetime, **overrides)  # type: ignore[arg-type]


def mig_single_geometry(
    model: str, profile: str, per_gpu: int, lifetime: Interval = FOREVER, gpus: int | None = None
) -> Geometry:
    """All GPUs in slices of one profile, advertised as GPUs (MIG strategy `single`)."""
    _, product, _, count = MODELS[model]
    gpus = gpus or count
    devices = [Device(gpu, profile, 7 + piece) for gpu in range(gpus) for piece in range(per_gpu)]
    labels = _gpu_feature_labels(f"{product}-MIG-{profile}", gpus * per_gpu, replicas=1, strategy="single")
    return Geometry({GPU: gpus * per_gpu}, {GPU: slice_of_gpu(model, profile)}, devices, labels, lifetime)


def mig_mixed_geometry(model: str, layouts: Sequence[Sequence[str]], lifetime: Interval = FOREVER) -> Geometry:
    """A MIG layout for each GPU (strategy `mixed`). An empty layout is a whole GPU."""
    _, product, _, _ = MODELS[model]
    devices: list[Device] = []
    units: dict[str, int] = {}
    share: dict[str, Fraction] = {}
    share_factors: dict[int, Fraction] = {}
    for gpu, layout in enumerate(layouts):
        if not layout:
            devices.append(Device(gpu))
            units[GPU], share[GPU] = units.get(GPU, 0) + 1, WHOLE_GPU
        for piece, profile in enumerate(layout):
            devices.append(Device(gpu, profile, 1 + piece))
            resource = resource_of_profile(profile)
            units[resource] = units.get(resource, 0) + 1
            share[resource] = slice_of_gpu(model, profile)
        # If the slices' dominant shares add up to more than the GPU, each share is scaled down.
        share_factors[gpu] = 1 / max(WHOLE_GPU, sum((slice_of_gpu(model, profile) for profile in layout), Fraction(0)))
    labels = _gpu_feature_labels(product, len(layouts), replicas=0 if all(layouts) else 1, strategy="mixed")
    return Geometry(units, share, devices, labels, lifetime, share_factors=share_factors)


def partitions_geometry(
    model: str, partitions: Sequence[Device], *, gpus: int, is_dynamic: bool = True, resource: str = "gpu_nvidia_com"
) -> Geometry:
    """GPUs that a DRA driver offers, whole and as MIG devices.

    Args:
        model: of the GPUs.
        partitions: the MIG devices. Dynamic ones exist while a claim has them.
        gpus: whole GPUs. With dynamic partitions they are the same GPUs; otherwise they are further ones.
        is_dynamic: whether partitions are created for claims.
        resource: of whole GPUs, as metering names it.
    """
    share = {resource_of_profile(device.profile): slice_of_gpu(model, device.profile) for device in partitions}
    first = 0 if is_dynamic else len({device.gpu for device in partitions})
    whole = [Device(first + number) for number in range(gpus)]
    return Geometry(
        {}, {resource: WHOLE_GPU, **share}, [*whole, *partitions], serves_claims=True, is_dynamic=is_dynamic
    )


def time_sliced_geometry(
    model: str, replicas: int, *, renamed: bool = False, strategy: str = "time-slicing"
) -> Geometry:
    """Every GPU advertised several times."""
    _, product, _, gpus = MODELS[model]
    resource = "nvidia_com_gpu_shared" if renamed else GPU
    labels = _gpu_feature_labels(product if renamed else f"{product}-SHARED", gpus, replicas=replicas, strategy="none")
    labels["nvidia_com_gpu_sharing_strategy"] = strategy
    devices = [Device(i) for i in range(gpus)]
    return Geometry({resource: gpus * replicas}, {resource: Fraction(1, replicas)}, devices, labels, replicas=replicas)


def vgpu_geometry(
    model: str, memory_mib: int, lifetime: Interval = FOREVER, *, split: int = 10, cores: int = 100
) -> Geometry:
    """GPUs that HAMi divides by cores and memory. It advertises each of them `split` times."""
    _, product, _, gpus = MODELS[model]
    labels = _gpu_feature_labels(product, gpus, replicas=1, strategy="none")
    return Geometry(
        {GPU: gpus * split},
        {GPU: Fraction(1, split)},
        [Device(gpu) for gpu in range(gpus)],
        labels,
        lifetime,
        replicas=split,
        vgpus_per_gpu=split,
        memory_mib=memory_mib,
        cores=cores,
    )


def neuron_node(name: str, instance_type: str, devices: int, cores: int, **overrides: object) -> Node:
    """A node with Neuron devices, which advertises the same hardware as devices and as cores."""
    geometry = Geometry(
        units={"aws_amazon_com_neuron": devices, "aws_amazon_com_neuroncore": devices * cores},
        share={"aws_amazon_com_neuron": WHOLE_GPU, "aws_amazon_com_neuroncore": Fraction(1, cores)},
        devices=[Device(core // cores) for core in range(devices * cores)],
    )
    return Node(name, instance_type, devices, "", (geometry,), vendor="neuron", **overrides)  # type: ignore[arg-type]


def amd_node(
    name: str,
    gpus: int,
    modes: Sequence[str] = (),
    *,
    naming: str = "single",
    advertised: Interval = FOREVER,
    allocatable: Mapping[str, int] | None = None,
    **overrides: object,
) -> Node:
    """A node with AMD MI300X GPUs.

    Args:
        name: its name.
        gpus: its GPUs.
        modes: each GPU's compute and memory partition mode, such as `cpx_nps4`; none if all are whole.
        naming: the device plugin's strategy: `single` names everything `amd.com/gpu`, `mixed` names the mode.
        advertised: when the device plugin advertises them.
        allocatable: units that are healthy, if fewer.
    """
    devices: list[Device] = []
    units: dict[str, int] = {}
    share: dict[str, Fraction] = {}
    for gpu, mode in enumerate(modes or ["spx_nps1"] * gpus):
        parts = _MI300X_PARTITIONS[mode.partition("_")[0]]
        resource = f"amd_com_{mode}" if naming == "mixed" else "amd_com_gpu"
        devices += [Device(gpu, mode, part) for part in range(parts)]
        units[resource] = units.get(resource, 0) + parts
        share[resource] = Fraction(1, parts)
    geometry = Geometry(units, share, devices, lifetime=advertised, allocatable=allocatable)
    attributes = {"instance_type": "", "geometries": (geometry,), "vendor": "amd", **overrides}
    return Node(name=name, gpus=gpus, model="AMD Instinct MI300X OAM", **attributes)  # type: ignore[arg-type]


def whole_device_node(name: str, vendor: str, resource: str, devices: int, **overrides: object) -> Node:
    """A node with whole devices of a vendor whose plugin advertises one resource."""
    geometry = Geometry({resource: devices}, {resource: WHOLE_GPU}, [Device(index) for index in range(devices)])
    attributes = {"instance_type": "", "geometries": (geometry,), **overrides}
    return Node(name=name, gpus=devices, model="", vendor=vendor, **attributes)  # type: ignore[arg-type]


def _gpu_feature_labels(product: str, count: int, *, replicas: int, strategy: str) -> dict[str, str]:
    return {
        "nvidia_com_gpu_product": product,
        "nvidia_com_gpu_count": str(count),
        "nvidia_com_gpu_replicas": str(replicas),
        "nvidia_com_gpu_sharing_strategy": "none",
        "nvidia_com_mig_strategy": strategy,
    }
