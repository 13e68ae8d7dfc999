"""Checks of the GPU exporter: its mode on each node pool, the pods in devices' labels, and the devices' nodes."""

from collections.abc import Iterable, Sequence

from gpucost.core.metering.accelerators import NEURON, NVIDIA
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE
from gpucost.core.metering.kubernetes_labels import (
    ADMIN_ACCESS_LABEL,
    GPU_SHARING_LABEL,
    INSTANCE_TYPE_LABEL,
    NAMESPACE_LABELS_METRIC,
    NODE_POOL_LABEL,
)
from gpucost.sources.prometheus.resource_claims import CHANGE_FOR_NEURON
from gpucost_cli.doctor import sharing
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Severity, doctor_check, first_few
from gpucost_cli.doctor.facts import (
    CLAIM_INFO,
    GPU,
    KUBE_STATE_METRICS,
    MIG,
    Facts,
    GpuHolder,
    ObservedDevice,
    ObservedNode,
    shared_mig_profiles,
)
from gpucost_cli.manifests.gpu_exporters import (
    DRA_EXPORTER,
    OPERATOR_VALUES_FILE,
    PLAIN_EXPORTER,
    SHARED_EXPORTER,
    GpuExporter,
)

_KUBERNETES_MAPPING = "DCGM_EXPORTER_KUBERNETES=true"


@doctor_check(
    "the GPU exporter",
    """
pods of devices | pods hold GPUs, and no device is labeled with any of them: all utilization is unmeasured | `DCGM_EXPORTER_KUBERNETES=true`. If it is set and the label `pod` of every series is the exporter's own pod, `exported_*` labels are dropped
""",  # noqa: E501 - one line for each row
)
def check_pod_mapping(context: CheckContext) -> Iterable[Check]:
    """Check whether the exporter labels devices with the pods that hold them."""
    facts = context.facts
    holders = [
        holder
        for holder in facts.gpu_holders
        if holder.resource == GPU and not _is_sliced(facts, holder) and holder.node not in facts.nodes_with_vgpus
    ]
    devices = _devices_of(facts, holders) or [device for device in facts.gpu_devices if not facts.node_of(device)]
    if not holders or not devices:
        return
    claimed = [device for device in facts.gpu_devices if facts.is_labeled_with_holder(device)]
    fault = None
    if not claimed:
        finding = f"{len(holders)} pods hold GPUs, and no device series is labeled with any of them"
        change = f"dcgm-exporter: env {_KUBERNETES_MAPPING}, with the host's /var/lib/kubelet/pod-resources mounted"
        if all(facts.is_exporter_pod(device) for device in devices):
            finding += "; the label pod of every series is the exporter's own pod"
            change += "; if it is set already, no labeldrop of exported_.* in metricRelabelings"
        fault = Fault(finding, change)
    yield context.check(
        "pods of devices", devices[0].signal, "recommended", fault, series=len(_distinct_devices(claimed))
    )


@doctor_check(
    "the GPU exporter",
    """
honorLabels | the exporter's labels override the target's, and idle GPUs are labeled with the exporter's own pod. Attribution and gpucost's rules ignore these labels, but other dashboards do not | `honorLabels: false`
""",  # noqa: E501 - one line for each row
)
def check_honor_labels(context: CheckContext) -> Iterable[Check]:
    """Check for idle devices that are labeled with the exporter's own pod."""
    facts = context.facts
    claimed = [device for device in facts.gpu_devices if facts.is_labeled_with_holder(device)]
    if not claimed:
        return
    idle = [device for device in facts.gpu_devices if not device.has_exported_labels and facts.is_exporter_pod(device)]
    fault = None
    if idle and any(not device.has_exported_labels for device in claimed):
        pods = first_few(device.target_pod for device in idle)
        fault = Fault(
            f"{len(_distinct_devices(idle))} idle devices are labeled with the exporter's own pod ({pods}): "
            "attribution ignores these labels, but in other queries this pod appears to hold the devices",
            "ServiceMonitor of dcgm-exporter: honorLabels: false",
        )
    yield context.check("honorLabels", claimed[0].signal, "optional", fault, series=len(_distinct_devices(claimed)))


@doctor_check(
    "the GPU exporter",
    """
Hostname | the labels of devices name no node: `NODE_NAME` is not set, so that `Hostname` is the exporter's pod | the env with `fieldPath: spec.nodeName`
""",  # noqa: E501 - one line for each row
)
def check_host_names(context: CheckContext) -> Iterable[Check]:
    """Check for devices whose labels name no node."""
    facts = context.facts
    if not facts.nodes or not facts.gpu_devices:
        return
    without_node = [device for device in facts.gpu_devices if not facts.node_of(device)]
    fault = None
    if without_node:
        names = first_few(name for device in without_node for name in device.node_names[:1]) or "is missing"
        fault = Fault(
            f"the labels of {len(_distinct_devices(without_node))} devices name no node of kube-state-metrics "
            f"(Hostname {names})",
            "dcgm-exporter: env NODE_NAME: {valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}",
            explained_by=() if _reports_nodes(facts) else ["kube_node_info"],
        )
    yield context.check(
        "Hostname", _signal(facts), "recommended", fault, series=len(_distinct_devices(facts.gpu_devices))
    )


def _reports_nodes(facts: Facts) -> bool:
    """Whether nodes are known from kube-state-metrics, and not only from the pods on them."""
    return any(node.has_info or node.reports_capacity or node.labels for node in facts.nodes.values())


@doctor_check(
    "the GPU exporter",
    """
pods of a Service | one target reports other nodes each time: its Service sends each scrape to another pod. Use is unmeasured; with kube-state-metrics (required), figures are wrong | a PodMonitor, or `kubernetes_sd_configs` with `role: pod`
""",  # noqa: E501 - one line for each row
)
def check_targets_in_turn(context: CheckContext) -> Iterable[Check]:
    """Check for targets that are Services, whose scrapes go to one of several pods each."""
    facts = context.facts
    of_devices = {device.target for device in facts.devices}
    for target, nodes in sorted(facts.nodes_in_turn.items(), key=str):
        name, names = f"{target.job} on {target.instance}", first_few(facts.node_named(node) for node in nodes)
        objects, metric = "objects", "kube_node_info"
        if target in of_devices:
            objects, metric = ("devices", next(device.signal for device in facts.devices if device.target == target))
        fault = Fault(
            f"one target ({name}) reports the {objects} of {len(nodes)} nodes in turn ({names}): its "
            "Service sends each scrape to another pod, so that most samples are lacking",
            f"scrape configuration of {target.job}: a PodMonitor, or kubernetes_sd_configs with role: pod (or "
            "endpoints), instead of the Service's address",
        )
        severity: Severity = "recommended" if target in of_devices else "required"
        yield context.check("pods of a Service", metric, severity, fault)


@doctor_check(
    "the GPU exporter",
    """
exporter on every node | node pools with GPU nodes without device series | the values file of [their kind of pool](../how-to/existing-cluster.md#one-exporter-for-each-kind-of-node-pool)
one exporter on every node | two exporters report the GPUs of a node, such as the GPU Operator's and a rendered one | `helm/gpu-operator-exporter.yaml`
""",  # noqa: E501 - one line for each row
)
def check_nodes_without_devices(context: CheckContext) -> Iterable[Check]:
    """Check for GPU nodes without device series."""
    facts = context.facts
    if not facts.gpu_devices or not all(facts.node_of(device) for device in facts.gpu_devices):
        return
    if any(device.target in facts.nodes_in_turn for device in facts.gpu_devices):
        return  # `check_targets_in_turn` says why nodes have no devices
    nodes = facts.gpu_nodes
    without = [name for name in nodes if not facts.devices_by_node.get(name)]
    fault = None
    if without:
        fault = Fault(
            f"{len(without)} of {len(nodes)} GPU nodes have no device series: {_in_pools(facts, without)}",
            f"{_values_files(facts, without)}; in a DaemonSet of your own: tolerations: [{{operator: Exists}}], and a "
            "node selector that matches these nodes",
        )
    series = len(nodes) - len(without)
    yield context.check("exporter on every node", _signal(facts), "recommended", fault, series=series)
    fault = None
    if several := facts.nodes_with_several_exporters:
        fault = Fault(
            f"several exporters report the GPUs of {_in_pools(facts, several)}: their labels may contradict each other",
            f"GPU Operator: {OPERATOR_VALUES_FILE} of gpucost manifests render (dcgmExporter: {{enabled: false}}), "
            f"with {_values_files(facts, several)}; or remove the exporter that the operator does not manage",
        )
    yield context.check("one exporter on every node", _signal(facts), "recommended", fault, series=series)


@doctor_check(
    "the GPU exporter",
    """
all GPUs of a node | exporters report fewer GPUs than the instance type has: idle GPUs disappear (before 4.5.3 with virtual GPUs; from 4.3.1-4.4.0 to 4.4.1-4.6.0 with DRA), or a GPU is broken | version 4.5.3; with DRA 4.4.2-4.7.0
""",  # noqa: E501 - one line for each row
)
def check_idle_devices(context: CheckContext) -> Iterable[Check]:
    """Check whether exporters report all GPUs that nodes have by their instance types."""
    facts = context.facts
    fewer: dict[str, str] = {}
    has_slots = has_claims = False
    for name, node in facts.gpu_nodes.items():
        devices = [device for device in facts.devices_by_node.get(name, ()) if device.vendor == NVIDIA]
        reported, expected = (
            len({device.uuid for device in devices}),
            GPUS_OF_INSTANCE.get(node.label(INSTANCE_TYPE_LABEL), 0),
        )
        if 0 < reported < expected:
            fewer[name] = f"{name}: {reported} of {expected}"
            has_slots = has_slots or any(device.slot for device in devices)
            has_claims = has_claims or (not node.capacity and any(device.claim for device in devices))
    if not facts.gpu_devices:
        return
    fault = None
    if fewer:
        are_sliced = all(sharing.is_sliced(facts, facts.gpu_nodes[name]) for name in fewer)
        fault = Fault(
            f"exporters report fewer GPUs than their nodes have ({first_few(fewer.values())})",
            "dcgm-exporter: version 4.5.3 or later (before, with KUBERNETES_VIRTUAL_GPUS, idle GPUs disappear)"
            if has_slots
            else "dcgm-exporter: version 4.4.2-4.7.0 or later (4.3.1-4.4.0 to 4.4.1-4.6.0 hide GPUs without claims)"
            if has_claims
            else "dcgm-exporter: -d f, for all devices; a GPU that nvidia-smi does not list either is broken",
            # Without the signal that works for slices, GPUs with slices have none.
            explained_by=["utilization signal"] if are_sliced else (),
        )
    yield context.check(
        "all GPUs of a node", _signal(facts), "optional", fault, series=len(facts.gpu_nodes) - len(fewer)
    )


@doctor_check(
    "the GPU exporter",
    """
virtual GPUs | GPUs are shared by time-slicing or MPS, but the labels of each GPU name only one of its pods, or different pods in turn (no series has `vgpu`) | `helm/dcgm-exporter-shared.yaml`: `KUBERNETES_VIRTUAL_GPUS=true`, version 4.1.1; and the label by which it selects the nodes, if they lack it
""",  # noqa: E501 - one line for each row
)
def check_virtual_gpus(context: CheckContext) -> Iterable[Check]:
    """Check whether devices of shared GPUs are labeled with all of their pods."""
    facts = context.facts
    shared = [
        node.name
        for node in facts.gpu_nodes.values()
        if sharing.is_shared(facts, node) and node.name not in facts.nodes_with_vgpus
    ]
    if not shared:
        return
    hidden = {name: count for name in shared if (count := _unlabeled_sharers(facts, name))}
    changing = [name for name in shared if _pod_labels_alternate(facts, name)]
    fault = None
    if changing:
        fault = Fault(
            f"labels of shared GPUs of {_in_pools(facts, changing)} change from one of their pods to another",
            _virtual_gpus_change(facts, changing),
        )
    if hidden:
        fault = Fault(
            f"GPUs of {_in_pools(facts, hidden)} are shared, and {sum(hidden.values())} of their pods are in no "
            "device's labels: of several pods on a GPU, only the last one is",
            _virtual_gpus_change(facts, hidden),
        )
    yield context.check("virtual GPUs", _signal(facts), "recommended", fault, series=len(shared))


@doctor_check(
    "the GPU exporter",
    """
processes on shared GPUs | the exporter reports utilization per process, but the values add up to less than half of the GPUs' own: it cannot see the processes, so `shared` is used instead of `process` | `helm/dcgm-exporter-shared.yaml`: `hostPID: true`
""",  # noqa: E501 - one line for each row
)
def check_processes(context: CheckContext) -> Iterable[Check]:
    """Check whether the exporter sees the processes whose utilization it reports; if not, it reports 0."""
    facts = context.facts
    shared = [node for node in facts.gpu_nodes.values() if sharing.is_shared(facts, node)]
    seen: dict[str, bool] = {}
    for node in shared:
        for device in facts.devices_by_node.get(node.name, ()):
            is_seen = sharing.is_divided_by_processes(facts, device)
            if is_seen is not None:
                seen[node.name] = seen.get(node.name, True) and is_seen
    if not seen:
        return
    unseen = [name for name, is_seen in seen.items() if not is_seen]
    fault = None
    if unseen:
        fault = Fault(
            f"on {_in_pools(facts, unseen)}, the utilization of the pods' processes does not account for that of "
            "their GPUs, so the use of these GPUs is split by replicas",
            f"{_values_file(SHARED_EXPORTER)}: hostPID: true, so that it sees processes of other pods",
        )
    yield context.check("processes on shared GPUs", _signal(facts), "recommended", fault, series=len(seen))


@doctor_check(
    "the GPU exporter",
    """
pods of nvidia.com/gpu.shared | the exporter maps only `nvidia.com/gpu` and `nvidia.com/mig-*` | `NVIDIA_RESOURCE_NAMES`
""",
)
def check_resource_names(context: CheckContext) -> Iterable[Check]:
    """Check for renamed resources that the exporter does not map to pods."""
    facts = context.facts
    renamed: dict[str, list[GpuHolder]] = {}
    for holder in facts.gpu_holders:
        if holder.resource != GPU and not holder.resource.startswith(MIG):
            renamed.setdefault(holder.resource, []).append(holder)
    workloads = {device.workload for device in facts.gpu_devices}
    for resource, holders in renamed.items():
        name = "nvidia.com/" + resource.removeprefix("nvidia_com_").replace("_", ".")
        fault = None
        if _devices_of(facts, holders) and not workloads & {holder.name for holder in holders}:
            fault = Fault(
                f"{len(holders)} pods hold {name}, and no device is labeled with them: by default, the exporter maps "
                "only nvidia.com/gpu and nvidia.com/mig-*",
                f"{_values_file(SHARED_EXPORTER)}, and in extraEnv: env NVIDIA_RESOURCE_NAMES={name}; an exporter of "
                f"your own also needs KUBERNETES_VIRTUAL_GPUS=true and {_KUBERNETES_MAPPING}",
                explained_by=["pods of devices"],
            )
        yield context.check(f"pods of {name}", _signal(facts), "recommended", fault, series=len(holders))


@doctor_check(
    "the GPU exporter",
    """
pods of MIG devices | pods hold slices, and no MIG device is labeled with any of these pods. Other devices have such labels, or no pod holds a whole GPU | version 4.5.3, and `DCGM_EXPORTER_KUBERNETES=true`
""",  # noqa: E501 - one line for each row
)
def check_mig_device_labels(context: CheckContext) -> Iterable[Check]:
    """Check whether MIG devices are labeled with their pods."""
    facts = context.facts
    holders = [holder for holder in facts.gpu_holders if holder.resource.startswith(MIG) or _is_sliced(facts, holder)]
    devices = [device for device in _devices_of(facts, holders) if device.mig_id]
    if not devices:
        return
    claimed = [device for device in devices if facts.is_labeled_with_holder(device)]
    others = any(facts.is_labeled_with_holder(device) for device in facts.gpu_devices if not device.mig_id)
    whole_gpus = any(holder.resource == GPU and not _is_sliced(facts, holder) for holder in facts.gpu_holders)
    fault = None
    if not claimed and (others or not whole_gpus):
        change = "dcgm-exporter: version 4.5.3 or later (before, it loses MIG device ids that end in ::N)"
        fault = Fault(
            f"{len(holders)} pods hold MIG slices, and no MIG device is labeled with any of them",
            change if others else f"{change}, and env {_KUBERNETES_MAPPING}",
            explained_by=["pods of devices"],
        )
    yield context.check(
        "pods of MIG devices", devices[0].signal, "recommended", fault, series=len(_distinct_devices(claimed))
    )


@doctor_check(
    "the GPU exporter",
    """
DRA claims | running pods have claims that no series names, and a node pool's GPU nodes advertise no GPUs and report no claims: its exporter lacks the mode, or is in virtual-GPU mode. Or GPU nodes of a pool have devices and advertise none, and no metric says that there are claims | `helm/dcgm-exporter-dra.yaml` and the label of its nodes: `KUBERNETES_ENABLE_DRA=true` without `KUBERNETES_VIRTUAL_GPUS`. Kubernetes 1.34 needs version 4.6.0-4.8.3, others 4.3.1
""",  # noqa: E501 - one line for each row
)
def check_claim_labels(context: CheckContext) -> Iterable[Check]:
    """Check whether the exporter reports DRA claims, which it does only with a flag."""
    facts = context.facts
    if not facts.gpu_nodes or not facts.has_series_of_any("kube_node_status_capacity"):
        return
    if not facts.has_series_of_any(CLAIM_INFO):
        yield from _check_silent_nodes(context)
        return
    pools_with_claims = {
        _pool_of(facts, facts.node_of(device)) for device in facts.gpu_devices if device.claim and facts.node_of(device)
    }
    without_claims = [
        name
        for name, node in facts.gpu_nodes.items()
        if not node.capacity and _pool_of(facts, name) not in pools_with_claims
    ]
    labeled = {device.workload for device in facts.gpu_devices if device.claim}
    unlabeled = facts.claiming_pods - labeled - facts.holder_names
    fault = None
    if without_claims and unlabeled:
        fault = Fault(
            f"{len(unlabeled)} pods have resource claims that no device series names, and the GPU nodes of "
            f"{_in_pools(facts, without_claims)} advertise no GPUs: their exporter reports no claims",
            f"{_values_file(DRA_EXPORTER)}, on nodes with the label nvidia.com/dra-kubelet-plugin=true: env "
            "KUBERNETES_ENABLE_DRA=true, without KUBERNETES_VIRTUAL_GPUS, with which it does not report claims; "
            "image 4.6.0-4.8.3 or later for Kubernetes 1.34, else 4.3.1 or later",
            explained_by=() if facts.gpu_devices else ["utilization signal", "GPU exporter now"],
        )
    yield context.check("DRA claims", CLAIM_INFO, "recommended", fault)


def _check_silent_nodes(context: CheckContext) -> Iterable[Check]:
    """Check for pools whose nodes have devices and advertise none, if no metric says that there are claims."""
    facts = context.facts
    explained = {_pool_of(facts, name) for name, node in facts.gpu_nodes.items() if node.capacity}
    explained |= {_pool_of(facts, facts.node_of(device)) for device in facts.gpu_devices if device.claim}
    with_unknown = {unexplained.node for unexplained in facts.unexplained}  # has a finding of its own
    silent = [
        name
        for name, node in facts.gpu_nodes.items()
        if not node.capacity
        and facts.devices_by_node.get(name)
        and name not in with_unknown
        and _pool_of(facts, name) not in explained
    ]
    if silent:
        fault = Fault(
            f"the GPU nodes of {_in_pools(facts, silent)} advertise no GPUs, and {CLAIM_INFO} has no series: "
            "no metric says whether pods have them through ResourceClaims. If they are in use, they are unobserved, "
            "else stranded: no pod can have them",
            f"if kubectl get resourceslices lists them: kube-state-metrics of version 2.20 or later, which exports "
            f"{CLAIM_INFO}, and {_values_file(DRA_EXPORTER)}; if not, install NVIDIA's device plugin",
        )
        yield context.check("DRA claims", CLAIM_INFO, "recommended", fault)


@doctor_check(
    "the GPU exporter",
    """
claims of Neuron | running pods have claims that no collector reports, and Neuron nodes advertise no devices | scrape kube-dra-exporter. neuron-monitor does not support the Neuron DRA driver, so the devices' use stays unmeasured
""",  # noqa: E501 - one line for each row
)
def check_claims_of_neuron(context: CheckContext) -> Iterable[Check]:
    """Check whether a collector reports claims of Neuron devices, which neuron-monitor does not."""
    facts = context.facts
    pods = facts.claiming_pods - facts.holder_names
    if not pods or not facts.silent_neuron_nodes or any(not node.capacity for node in facts.gpu_nodes.values()):
        return
    fault, note = None, NEURON.use_of_claims
    if unreported := pods - facts.pods_of_reported_claims:
        fault = Fault(
            f"{len(unreported)} pods have resource claims of which no metric says what they allocate, and the Neuron "
            f"nodes of {_in_pools(facts, facts.silent_neuron_nodes)} advertise no devices",
            CHANGE_FOR_NEURON,
        )
    yield context.check("claims of Neuron", CLAIM_INFO, "recommended", fault, note=None if fault else note)


@doctor_check(
    "the GPU exporter",
    """
several claims on a device | devices are allocated to several claims at a time, and no namespace has the label of admin access, so that the claims hold equal parts. A note: only claims that may have admin access are on some devices, and they count as held | `--metric-labels-allowlist=namespaces=[resource.kubernetes.io/admin-access]`
""",  # noqa: E501 - one line for each row
)
def check_several_claims(context: CheckContext) -> Iterable[Check]:
    """Check whether it is known which of the claims on a device hold it, as in metering."""
    facts = context.facts
    holding = facts.holding_claims_by_device
    several = [claims for claims in holding.values() if len(claims) > 1]
    of_admins = [claims for claims in holding.values() if claims and all(map(facts.may_have_admin_access, claims))]
    fault, note = None, None
    if several:
        sentence = f"{_describe_claims(facts, several, 'each allocated to several claims')}, which hold equal parts"
        note = f"{sentence}. Claims of namespaces with the label {ADMIN_ACCESS_LABEL} may hold nothing"
        if not facts.admin_namespaces:
            fault = Fault(
                f"{sentence}. Claims with admin access hold nothing, and are known by the label {ADMIN_ACCESS_LABEL} "
                f"of their namespace, which no series of {NAMESPACE_LABELS_METRIC} has",
                f"if kubectl get namespaces -l {ADMIN_ACCESS_LABEL}=true lists the namespace of one of them, "
                f"{context.label_change}",
                explained_by=[NAMESPACE_LABELS_METRIC, KUBE_STATE_METRICS, "selector"],
            )
    elif of_admins:
        only = f"allocated only to claims of namespaces with the label {ADMIN_ACCESS_LABEL}"
        note = (
            f"{_describe_claims(facts, of_admins, only)}. No metric says whether these claims have adminAccess, so "
            "they count as held"
        )
    if facts.has_devices_of_several_claims or of_admins:
        yield context.check("several claims on a device", _signal(facts), "recommended", fault, note=note)


def _describe_claims(facts: Facts, claims_by_device: Sequence[Sequence[ObservedDevice]], state: str) -> str:
    """A sentence about the state of some devices, with their nodes and claims."""
    series = [device for claims in claims_by_device for device in claims]
    nodes = _in_pools(facts, {facts.node_of(device) for device in series} - {""})
    claims = first_few(f"{device.workload[0]}/{device.claim}" for device in series)
    count = len(claims_by_device)
    devices = "1 device" if count == 1 else f"{count} devices"
    return f"{devices} of {nodes or 'unknown nodes'} {'is' if count == 1 else 'are'} {state} ({claims})"


def _virtual_gpus_change(facts: Facts, names: Iterable[str]) -> str:
    """The values of the exporter that labels shared GPUs with all of their pods, and what it selects the nodes by."""
    change = f"{_values_file(SHARED_EXPORTER)}: env KUBERNETES_VIRTUAL_GPUS=true, version 4.1.1 or later"
    nodes = [facts.nodes[name] for name in names]
    profiles = sorted({profile for node in nodes for profile in shared_mig_profiles(node)})
    if profiles:
        change += f"; parameters: collection: {{shared_mig_profiles: [{', '.join(profiles)}]}}"
    elif any(node.labels and node.label(GPU_SHARING_LABEL) in {"", "none"} for node in nodes):
        change += f"; GPU feature discovery, for the label {GPU_SHARING_LABEL.keys[0]} by which it selects nodes"
    return change


def _values_files(facts: Facts, names: Iterable[str]) -> str:
    """The values of the exporters for some nodes."""
    exporters = dict.fromkeys(_exporter_for(facts, facts.nodes[name]) for name in sorted(names))
    return " and ".join(_values_file(exporter) for exporter in exporters)


def _exporter_for(facts: Facts, node: ObservedNode) -> GpuExporter:
    if not node.capacity and facts.has_series_of_any(CLAIM_INFO):
        return DRA_EXPORTER
    return SHARED_EXPORTER if sharing.is_shared(facts, node) else PLAIN_EXPORTER


def _values_file(exporter: GpuExporter) -> str:
    return f"dcgm-exporter with {exporter.values_file} of gpucost manifests render"


def _in_pools(facts: Facts, names: Iterable[str]) -> str:
    """Node pools, each with some of its nodes, for a sentence."""
    by_pool: dict[str, list[str]] = {}
    for name in sorted(names):
        by_pool.setdefault(_pool_of(facts, name), []).append(name)
    return ", ".join(
        f"node pool {pool} ({first_few(nodes)})" if pool else first_few(nodes) for pool, nodes in by_pool.items()
    )


def _pool_of(facts: Facts, name: str) -> str:
    return facts.nodes[name].label(NODE_POOL_LABEL)


def _signal(facts: Facts) -> str:
    return facts.gpu_devices[0].signal if facts.gpu_devices else ""


def _is_sliced(facts: Facts, holder: GpuHolder) -> bool:
    """Whether a pod holds MIG slices that are advertised under the name of whole GPUs."""
    node = facts.nodes.get(holder.node)
    if node is None or any(name.startswith(MIG) for name in node.capacity):
        return False
    return sharing.is_sliced(facts, node)


def _unlabeled_sharers(facts: Facts, node: str) -> int:
    """The number of pods on a node with shared GPUs that are in no device's labels, if each device names one pod."""
    holders = {holder.name for holder in facts.gpu_holders if holder.node == node}
    devices = facts.devices_by_node.get(node, ())
    pairs = {(device.key, device.workload) for device in devices if device.workload in holders}
    labeled = {workload for _, workload in pairs}
    has_one_pod_each = len(pairs) <= len({device.key for device in devices})
    return len(holders - labeled) if labeled and has_one_pod_each else 0


def _pod_labels_alternate(facts: Facts, node: str) -> bool:
    """Whether devices were labeled with several pods in turn. Series of virtual GPUs have a slot (`vgpu`) each."""
    workloads: dict[object, set[tuple[str, str]]] = {}
    for device in facts.devices_by_node.get(node, ()):
        if facts.is_labeled_with_holder(device) and not device.slot:
            workloads.setdefault(device.key, set()).add(device.workload)
    return any(len(pods) > 1 for pods in workloads.values())


def _devices_of(facts: Facts, holders: Sequence[GpuHolder]) -> list[ObservedDevice]:
    nodes = {holder.node for holder in holders}
    return [device for device in facts.gpu_devices if facts.node_of(device) in nodes]


def _distinct_devices(devices: Iterable[ObservedDevice]) -> set[object]:
    return {device.key for device in devices}
