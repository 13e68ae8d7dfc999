"""The catalog of accelerator vendors: resources, exporters with their signals, and the labels of device series.

A vendor is one entry. Sources: ROCm/device-metrics-exporter 1.5.2 (`gpuagent_gpu_metrics.go`, docs/configuration) and
ROCm/k8s-device-plugin 1.31 (docs/user-guide/configuration.md); HabanaAI/gaudi-metric-exporter 1.24.0-1007
(`exporter.go`, `kube.go`); intel/xpumanager 2.0.0 (`xpumd/receiver/intelxpu`) and intel-device-plugins-for-kubernetes
0.36 (cmd/gpu_plugin/README.md); the Neuron Monitor user guide. DRA drivers: ROCm/k8s-gpu-dra-driver,
intel/intel-resource-drivers-for-kubernetes, EKS' user guide (Manage Neuron devices).
"""

import re
from collections.abc import Mapping
from functools import cache

from msgspec import Struct

from gpucost.core.metering.signals import SIGNALS, Exporter, Signal

_RATIO, _PERCENT = SIGNALS["DCGM_FI_PROF_GR_ENGINE_ACTIVE"].scale, SIGNALS["DCGM_FI_DEV_GPU_UTIL"].scale


class DeviceIdentity(Struct, frozen=True):
    """A device in the labels of its series. A partition is a MIG device, or a part of an AMD GPU."""

    uuid: str
    partition: str
    profile: str
    model: str


class DeviceLabels(Struct, frozen=True):
    """The labels of an exporter's device series."""

    device: tuple[str, ...]
    """Labels that identify a physical device on its node; the first that is not blank counts."""
    device_prefix: str = ""
    """Written before it."""
    model: tuple[str, ...] = ()
    pod: tuple[str, str] | None = None
    """The labels of the pod's namespace and name; None for `namespace` and `pod`, or `exported_…` of both."""
    pod_uid: str = "pod_uid"
    partition: str = ""
    """The index of a partition of the device."""
    partition_profile: tuple[str, ...] = ()
    """Labels that together name how the device is divided."""
    whole_profiles: tuple[str, ...] = ("",)
    """The values of the first of `partition_profile` on devices that are not divided."""
    ordinal: str = ""
    """The device's number on its node, where the labels of `device` are blank."""

    @property
    def names(self) -> tuple[str, ...]:
        """All labels that are read, except those of pods."""
        single = tuple(name for name in (self.partition, self.ordinal) if name)
        return (*self.device, *self.model, *self.partition_profile, *single, *(name for name in self.pod or () if name))

    def identify(self, labels: Mapping[str, str]) -> DeviceIdentity:
        """Return the device of a series."""
        uuid = next((labels[name] for name in self.device if labels.get(name)), "")
        model = next((labels[name] for name in self.model if labels.get(name)), "")
        partition = profile = ""
        if self.partition_profile and labels.get(self.partition_profile[0], "") not in self.whole_profiles:
            profile = "_".join(labels[name] for name in self.partition_profile if labels.get(name))
            partition = labels.get(self.partition, "")
        if not uuid and self.ordinal and labels.get(self.ordinal):
            # Partitions have numbers of their own, which say nothing about the physical device.
            if partition:
                return DeviceIdentity("", f"{labels[self.ordinal]}/{partition}", profile, model)
            uuid = labels[self.ordinal]
        return DeviceIdentity(f"{self.device_prefix}{uuid}" if uuid else "", partition, profile, model)


class Accelerator(Struct, frozen=True):
    """A vendor's accelerators in Kubernetes and in Prometheus."""

    vendor: str
    """Its name in the code and in `DeviceSeries`."""
    display_name: str
    """Its name in messages."""
    domain: str
    """The domain of its resources."""
    resources: str
    """A regular expression of the resources' names behind the domain, as kube-state-metrics writes them."""
    scraped: Exporter
    exporter: str
    """The exporter's name in messages, and the job that the rendered collectors give it."""
    install: str
    """How to install the exporter."""
    signals: tuple[Signal, ...]
    """Utilization signals; a device has at most one of them."""
    labels: DeviceLabels
    dra_driver: str = ""
    """The DRA driver that offers its devices to ResourceClaims."""
    resource_of_claims: str = ""
    """The resource, as kube-state-metrics writes it, of which a device of a claim is one unit."""
    use_of_claims: str = ""
    """What to do so that the use of devices of claims is measured."""
    pod_labels_from: str = ""
    """How the exporter gets the labels of pods; "" if it has none."""
    reports_idle_devices: bool = True
    """Whether devices that no process uses have series."""
    model: str = ""
    """The model where the labels of nodes and series do not name one."""
    power_metrics: tuple[str, ...] = ()
    """The power of a device, in any unit; of several names, the largest counts. It contradicts a signal of 0."""
    reset: str = ""
    """What to do where the signal is stuck at 0."""
    manufacturer: str = ""
    """As EC2 names it in its instance types; "" if no instance type has the vendor's devices."""

    @property
    def metrics_source(self) -> str:
        """The exporter, as the setting `sources` names it."""
        return self.scraped.source

    @property
    def metric_prefixes(self) -> tuple[str, ...]:
        """Prefixes of the exporter's metrics, in lower case."""
        return self.scraped.metric_prefixes

    @property
    def resource_prefix(self) -> str:
        """The domain as kube-state-metrics writes it."""
        return re.sub(r"[^a-z0-9]", "_", self.domain) + "_"

    @property
    def resource_pattern(self) -> str:
        """A regular expression of the resources, as kube-state-metrics writes them."""
        return self.resource_prefix + self.resources

    @property
    def kubernetes_resource_pattern(self) -> str:
        """A regular expression of the resources, as Kubernetes, Karpenter and resource quotas write them."""
        return self.domain.replace(".", "[.]") + "/" + self.resources


NVIDIA = "nvidia"
NEURON = Accelerator(
    vendor="neuron",
    display_name="Neuron",
    domain="aws.amazon.com",
    resources="neuron.*",
    scraped=Exporter(
        source="neuron_monitor",
        series="neuron-monitor (`neuron*`)",
        namespaces=("neuron-monitor", "kube-system"),
        metric_prefixes=("neuron", "execution_"),
        discovery_labels=("pod_label_app", "pod_label_app_kubernetes_io_name"),
        discovery_values="neuron-monitor;.*|.*;neuron-monitor",
        names_no_node=True,
    ),
    exporter="neuron-monitor",
    install=(
        "install neuron-monitor with its Prometheus exporter: helm install neuron-helm-chart "
        "oci://public.ecr.aws/neuron/neuron-helm-chart --set neuronMonitor.enabled=true"
    ),
    signals=(
        Signal(
            "neuroncore_utilization_ratio",
            "neuroncore",
            _RATIO,
            works_under_mig=True,
            exporter_versions="neuron-monitor",
        ),
    ),
    labels=DeviceLabels(("neuroncore",), "neuroncore-"),
    dra_driver="neuron.aws.com",
    resource_of_claims="aws_amazon_com_neuron",
    use_of_claims="neuron-monitor does not support the Neuron DRA driver, so their use is unmeasured",
    pod_labels_from=(
        "turn on its Kubernetes integration: pipe its output through neuron-monitor-k8s-info.py (Neuron 2.23 or later)"
    ),
    reports_idle_devices=False,
    model="NeuronCore",
    manufacturer="AWS",
)
AMD = Accelerator(
    vendor="amd",
    display_name="AMD GPU",
    domain="amd.com",
    resources="(gpu|(spx|dpx|tpx|qpx|cpx)_nps[0-9]+)",
    scraped=Exporter(
        source="amd_device_metrics_exporter",
        series="AMD's device-metrics-exporter (`gpu_gfx_*`, `amd_gpu_*`)",
        namespaces=("kube-amd-gpu",),
        metric_prefixes=("gpu_gfx_", "gpu_power_", "gpu_package_", "gpu_average_package_", "amd_gpu_"),
        discovery_labels=("pod_label_app_kubernetes_io_name", "pod_container_port_number"),
        discovery_values="metrics-exporter;[0-9]+",
        names_no_node=True,
    ),
    exporter="amd-device-metrics-exporter",
    install=(
        "install AMD's device-metrics-exporter: helm install metrics-exporter device-metrics-exporter-charts "
        "--repo https://rocm.github.io/device-metrics-exporter --namespace kube-amd-gpu --create-namespace"
    ),
    signals=(
        # On a partitioned GPU, partition 0 has the activity of the whole GPU, and the others have none.
        Signal("gpu_gfx_activity", "graphics engine", _PERCENT, works_under_mig=False, exporter_versions="1.0+ (AMD)"),
        Signal(
            "gpu_gfx_busy_instantaneous",
            "graphics engine",
            _PERCENT,
            works_under_mig=True,
            exporter_versions="1.4+ (AMD)",
            works_on_whole_gpus=False,
            averaged_over="xcc_index",
        ),
        # `MetricsFieldPrefix` of the exporter's example ConfigMap.
        Signal(
            "amd_gpu_gfx_activity", "graphics engine", _PERCENT, works_under_mig=False, exporter_versions="1.4+ (AMD)"
        ),
        Signal(
            "amd_gpu_gfx_busy_instantaneous",
            "graphics engine",
            _PERCENT,
            works_under_mig=True,
            exporter_versions="1.4+ (AMD)",
            works_on_whole_gpus=False,
            averaged_over="xcc_index",
        ),
    ),
    labels=DeviceLabels(
        # Partitions have the serial number of their GPU. In virtual machines, it is blank.
        device=("serial_number", "gpu_uuid"),
        model=("card_series", "card_model"),
        partition="gpu_partition_id",
        partition_profile=("gpu_compute_partition_type", "gpu_memory_partition_type"),
        whole_profiles=("", "none", "spx"),
        ordinal="gpu_id",
        pod_uid="pod_uuid",
    ),
    dra_driver="gpu.amd.com",
    resource_of_claims="amd_com_gpu",
    pod_labels_from="mount the host's /var/lib/kubelet/pod-resources (kubelet.podResourceAPISocketPath)",
    # Guests of a hypervisor have none of them. Of a partitioned GPU, partition 0 has them, and the others 0.
    power_metrics=(
        "gpu_power_usage",
        "gpu_package_power",
        "gpu_average_package_power",
        "amd_gpu_power_usage",
        "amd_gpu_package_power",
        "amd_gpu_average_package_power",
    ),
    reset="restart amd-device-metrics-exporter and its gpuagent",
    manufacturer="AMD",
)
GAUDI = Accelerator(
    vendor="gaudi",
    display_name="Gaudi",
    domain="habana.ai",
    resources="gaudi",
    scraped=Exporter(
        source="gaudi_metric_exporter",
        series="Intel's gaudi-metric-exporter (`habanalabs_*`)",
        namespaces=("monitoring",),
        metric_prefixes=("habanalabs_",),
        discovery_labels=("pod_label_app_kubernetes_io_name", "pod_container_port_name"),
        discovery_values="metric-exporter-ds;habana-metrics",
        names_no_node=True,
    ),
    exporter="gaudi-metric-exporter",
    install=(
        "install Intel's gaudi-metric-exporter: deploy/manifests of https://github.com/HabanaAI/gaudi-metric-exporter, "
        "with the host's /var/lib/kubelet/pod-resources mounted"
    ),
    signals=(
        Signal("habanalabs_utilization", "device", _PERCENT, works_under_mig=False, exporter_versions="1.23+ (Gaudi)"),
    ),
    labels=DeviceLabels(device=("UUID", "Serial"), pod=("pod_namespace", "pod_name")),
    dra_driver="gaudi.intel.com",
    resource_of_claims="habana_ai_gaudi",
    pod_labels_from="mount the host's /var/lib/kubelet/pod-resources",
    power_metrics=("habanalabs_power_mW",),
    reset="restart gaudi-metric-exporter",
    manufacturer="HABANA",
    model="Intel-Gaudi",
)
INTEL_GPU = Accelerator(
    vendor="intel",
    display_name="Intel GPU",
    domain="gpu.intel.com",
    resources="(i915|xe)",
    scraped=Exporter(
        source="xpumd",
        series="xpumd, the daemon of Intel's XPU Manager (`hw_gpu_*`)",
        namespaces=("xpumd",),
        metric_prefixes=("hw_gpu_", "hw_power_"),
        discovery_labels=("pod_label_app_kubernetes_io_name", "pod_container_port_name"),
        discovery_values="xpumd;http",
        names_no_node=True,
    ),
    exporter="xpumd",
    install=(
        "install xpumd of Intel's XPU Manager 2: helm install xpumd "
        "oci://ghcr.io/intel/xpumanager/charts/xpumd --set gpuAccess=plugin"
    ),
    # Each group of engines has a series; `all` is the whole GPU, and tiles are sub-devices.
    signals=(
        Signal(
            "hw_gpu_utilization_ratio",
            "device",
            _RATIO,
            works_under_mig=False,
            exporter_versions="2.0+ (Intel)",
            matchers=(("hw_gpu_task", "all"), ("com_intel_subdevice_id", "")),
        ),
    ),
    labels=DeviceLabels(device=("pci_bdf", "hw_id"), pod=("", "")),  # its series have no labels of pods
    dra_driver="gpu.intel.com",
    resource_of_claims="gpu_intel_com_xe",
    power_metrics=("hw_power_watts",),
    reset="restart xpumd",
)
ACCELERATORS = (NEURON, AMD, GAUDI, INTEL_GPU)
"""All vendors but NVIDIA, whose signals the settings choose."""

NEURON_SIGNAL = NEURON.signals[0]
DRA_DRIVERS: Mapping[str, str] = {
    "gpu.nvidia.com": "gpu.nvidia.com",
    **{accelerator.dra_driver: accelerator.resource_of_claims for accelerator in ACCELERATORS},
}
"""The DRA drivers of accelerators, and the resource of which a device of a claim is one unit."""
DRA_DRIVERS_WITHOUT_GPUS = (
    "(compute-domain[.]nvidia[.]com|dra[.]net|qat[.]intel[.]com|.*(efa|net|nic|rdma|sriov|dranet|cpu|memory).*)"
)
"""A regular expression of DRA drivers whose devices are no accelerators: interfaces, channels, processors."""
_BY_SIGNAL = {signal.name: accelerator for accelerator in ACCELERATORS for signal in accelerator.signals}
_BY_POWER = {name: accelerator for accelerator in ACCELERATORS for name in accelerator.power_metrics}
_BY_VENDOR = {accelerator.vendor: accelerator for accelerator in ACCELERATORS}
ACCELERATOR_SIGNALS = tuple(signal for accelerator in ACCELERATORS for signal in accelerator.signals)


def accelerator_of_signal(signal: str) -> Accelerator | None:
    """Return the vendor of a signal; None for NVIDIA's."""
    return _BY_SIGNAL.get(signal)


def accelerator_of_power(metric: str) -> Accelerator | None:
    """Return the vendor of a metric of power; None for NVIDIA's."""
    return _BY_POWER.get(metric)


def accelerator_of_vendor(vendor: str) -> Accelerator | None:
    """Return the catalog's entry of a vendor; None for NVIDIA."""
    return _BY_VENDOR.get(vendor)


@cache
def vendor_of(resource: str) -> str:
    """Return the vendor of a resource, named as in kube-state-metrics."""
    return next(
        (accelerator.vendor for accelerator in ACCELERATORS if re.fullmatch(accelerator.resource_pattern, resource)),
        NVIDIA,
    )


# Names of Kubernetes resources as kube-state-metrics writes them: GPUs that metering knows, and what is no GPU.

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
