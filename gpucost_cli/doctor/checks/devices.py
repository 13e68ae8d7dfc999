"""GPU exporter: which pod each device is labelled with, and on which node it is."""

from collections.abc import Iterable, Sequence

from gpucost.core.metering.gpu_models import GPUS_OF_INSTANCE
from gpucost.core.metering.kubernetes_labels import INSTANCE_TYPE
from gpucost_cli.doctor import sharing
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Status, first_few
from gpucost_cli.doctor.facts import CLAIM_INFO, GPU, MIG, NEURON_RESOURCE, REQUESTS, Device, Facts, Holder
from gpucost_cli.doctor.signals import NEURON

_KUBERNETES_MAPPING = "DCGM_EXPORTER_KUBERNETES=true"


def mapping(context: CheckContext) -> Iterable[Check]:
    """Whether the exporter labels devices with the pods that hold them."""
    facts = context.facts
    holders = [one for one in facts.gpu_holders if one.resource == GPU and not _is_sliced(facts, one)]
    devices = _devices_of(facts, holders) or [one for one in facts.gpu_devices if not facts.node_of(one)]
    if not holders or not devices:
        return
    claimed = [device for device in facts.gpu_devices if facts.is_labeled_with_holder(device)]
    fault = None
    if not claimed:
        finding = f"{len(holders)} pods hold GPUs, and no device series is labelled with any of them"
        change = f"dcgm-exporter: env {_KUBERNETES_MAPPING}, with the host's /var/lib/kubelet/pod-resources mounted"
        if all(facts.is_exporter_pod(device) for device in devices):
            finding += "; the pod on every series is the exporter's own"
            change += "; where it is set, no labeldrop of exported_.* in metricRelabelings"
        fault = Fault(finding, change)
    yield context.check("pods of devices", devices[0].signal, "recommended", fault, series=len(_keys(claimed)))


def honor_labels(context: CheckContext) -> Iterable[Check]:
    """Idle devices that carry the exporter's own pod, as if it held them."""
    facts = context.facts
    claimed = [device for device in facts.gpu_devices if facts.is_labeled_with_holder(device)]
    if not claimed:
        return
    idle = [device for device in facts.gpu_devices if not device.has_exported_labels and facts.is_exporter_pod(device)]
    fault = None
    if idle and any(not device.has_exported_labels for device in claimed):
        fault = Fault(
            f"{len(_keys(idle))} idle devices carry the exporter's own pod ({first_few(one.target_pod for one in idle)}): "
            "attribution leaves it out, other queries take it for their holder",
            "ServiceMonitor of dcgm-exporter: honorLabels: false",
        )
    yield context.check("honorLabels", claimed[0].signal, "optional", fault, series=len(_keys(claimed)))


def host_names(context: CheckContext) -> Iterable[Check]:
    """Devices that no label ties to a node."""
    facts = context.facts
    if not facts.nodes or not facts.gpu_devices:
        return
    lost = [device for device in facts.gpu_devices if not facts.node_of(device)]
    fault = None
    if lost:
        names = first_few(name for device in lost for name in device.node_names[:1]) or "is missing"
        fault = Fault(
            f"{len(_keys(lost))} devices are on no node that kube-state-metrics knows (Hostname {names})",
            "dcgm-exporter: env NODE_NAME: {valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}",
        )
    yield context.check("Hostname", _signal(facts), "recommended", fault, series=len(_keys(facts.gpu_devices)))


def exporters(context: CheckContext) -> Iterable[Check]:
    """GPU nodes from which no device series comes."""
    facts = context.facts
    if not facts.gpu_devices or not all(facts.node_of(device) for device in facts.gpu_devices):
        return
    nodes = facts.gpu_nodes
    without = [name for name in nodes if not facts.devices_on.get(name)]
    fault = None
    if without:
        fault = Fault(
            f"no device series come from {len(without)} of {len(nodes)} GPU nodes ({first_few(without)})",
            "dcgm-exporter DaemonSet: tolerations: [{operator: Exists}], and a node selector that fits these nodes",
        )
    series = len(nodes) - len(without)
    yield context.check("exporter on every node", _signal(facts), "recommended", fault, series=series)


def idle_devices(context: CheckContext) -> Iterable[Check]:
    """GPUs that a node has by its instance type, and that its exporter does not tell of."""
    facts = context.facts
    fewer: dict[str, str] = {}
    slots = False
    for name, node in facts.gpu_nodes.items():
        devices = [device for device in facts.devices_on.get(name, ()) if device.signal != NEURON.name]
        seen, known = len({device.uuid for device in devices}), GPUS_OF_INSTANCE.get(node.label(INSTANCE_TYPE), 0)
        if 0 < seen < known:
            fewer[name] = f"{name}: {seen} of {known}"
            slots = slots or any(device.slot for device in devices)
    if not facts.gpu_devices:
        return
    fault = None
    if fewer:
        fault = Fault(
            f"exporters tell of fewer GPUs than their nodes have ({first_few(fewer.values())})",
            "dcgm-exporter: version 4.5.3 or later (before, with KUBERNETES_VIRTUAL_GPUS, idle GPUs disappear)"
            if slots
            else "dcgm-exporter: -d f, for all devices; a GPU that nvidia-smi does not list either has failed",
        )
    yield context.check("all GPUs of a node", _signal(facts), "optional", fault, series=len(facts.gpu_nodes) - len(fewer))


def virtual_gpus(context: CheckContext) -> Iterable[Check]:
    """Shared GPUs of which only one sharer is labelled."""
    facts = context.facts
    shared = [node.name for node in facts.gpu_nodes.values() if sharing.is_shared(facts, node)]
    if not shared:
        return
    hidden = {name: count for name in shared if (count := _unlabelled_sharers(facts, name))}
    flipping = [name for name in shared if _changes_labels(facts, name)]
    change = "dcgm-exporter, version 4.1.1 or later: env KUBERNETES_VIRTUAL_GPUS=true"
    fault = None
    if flipping:
        fault = Fault(f"labels of shared GPUs of {first_few(flipping)} go from one of their pods to another", change)
    if hidden:
        fault = Fault(
            f"GPUs of {first_few(hidden)} are shared, and {sum(hidden.values())} of their pods are on no device series: "
            "of several on a GPU, the last one wins",
            change,
        )
    yield context.check("virtual GPUs", _signal(facts), "recommended", fault, series=len(shared))


def resource_names(context: CheckContext) -> Iterable[Check]:
    """Renamed resources whose pods the exporter does not look for."""
    facts = context.facts
    renamed: dict[str, list[Holder]] = {}
    for one in facts.gpu_holders:
        if one.resource != GPU and not one.resource.startswith(MIG):
            renamed.setdefault(one.resource, []).append(one)
    claimed = {device.workload for device in facts.gpu_devices}
    for resource, holders in renamed.items():
        name = "nvidia.com/" + resource.removeprefix("nvidia_com_").replace("_", ".")
        fault = None
        if _devices_of(facts, holders) and not claimed & {one.name for one in holders}:
            fault = Fault(
                f"{len(holders)} pods hold {name}, and none is labelled on a device: the exporter looks for "
                "nvidia.com/gpu and nvidia.com/mig-* unless it is told otherwise",
                f"dcgm-exporter: env NVIDIA_RESOURCE_NAMES={name}, KUBERNETES_VIRTUAL_GPUS=true and {_KUBERNETES_MAPPING}",
            )
        yield context.check(f"pods of {name}", _signal(facts), "recommended", fault, series=len(holders))


def mig_ids(context: CheckContext) -> Iterable[Check]:
    """MIG devices that lost their pods' labels, though other devices have theirs or there are no others."""
    facts = context.facts
    holders = [one for one in facts.gpu_holders if one.resource.startswith(MIG) or _is_sliced(facts, one)]
    devices = [device for device in _devices_of(facts, holders) if device.mig_id]
    if not devices:
        return
    claimed = [device for device in devices if facts.is_labeled_with_holder(device)]
    others = any(facts.is_labeled_with_holder(device) for device in facts.gpu_devices if not device.mig_id)
    plain = any(one.resource == GPU and not _is_sliced(facts, one) for one in facts.gpu_holders)
    fault = None
    if not claimed and (others or not plain):
        change = "dcgm-exporter: version 4.5.3 or later (before, it loses MIG device ids that end in ::N)"
        fault = Fault(
            f"{len(holders)} pods hold MIG slices, and no MIG device is labelled with any of them",
            change if others else f"{change}, and env {_KUBERNETES_MAPPING}",
        )
    yield context.check("pods of MIG devices", devices[0].signal, "recommended", fault, series=len(_keys(claimed)))


def claims(context: CheckContext) -> Iterable[Check]:
    """DRA claims, of which the exporter tells only where it is asked to."""
    facts = context.facts
    if not facts.has(CLAIM_INFO) or not facts.gpu_nodes or not facts.has("kube_node_status_capacity"):
        return
    silent = [name for name, node in facts.gpu_nodes.items() if not node.capacity]
    fault = None
    if silent and not any(device.claim for device in facts.gpu_devices):
        fault = Fault(
            f"pods have resource claims, GPU nodes advertise no GPUs ({first_few(silent)}), and no device series carries "
            "dra_claim_name",
            "dcgm-exporter, version 4.3.1 or later: env KUBERNETES_ENABLE_DRA=true",
        )
    yield context.check("DRA claims", CLAIM_INFO, "recommended", fault)


def neuron(context: CheckContext) -> Iterable[Check]:
    """AWS's own accelerators: whether their use is measured."""
    facts = context.facts
    held = [name for name in facts.resources if name.startswith(NEURON_RESOURCE)]
    if held:
        yield context.check("Neuron requests", REQUESTS, "recommended", series=sum(facts.resources[name] for name in held))
    if facts.has(NEURON.name):
        yield context.check("Neuron", NEURON.name, "recommended")
        return
    fault = None
    if held:
        fault = Fault(
            f"pods hold {first_few(held)}, and {NEURON.name} has no series: their use is unmeasured",
            "install neuron-monitor with its Prometheus exporter: helm install neuron-helm-chart "
            "oci://public.ecr.aws/neuron/neuron-helm-chart --set neuronMonitor.enabled=true",
        )
    status: Status = "missing" if held else "not needed"
    yield context.check("Neuron", NEURON.name, "recommended", fault, status=status, series=0)


def _signal(facts: Facts) -> str:
    return facts.gpu_devices[0].signal if facts.gpu_devices else ""


def _is_sliced(facts: Facts, holder: Holder) -> bool:
    """Whether what is held are MIG slices under the name of whole GPUs."""
    node = facts.nodes.get(holder.node)
    if node is None or any(name.startswith(MIG) for name in node.capacity):
        return False
    return sharing.is_sliced(facts, node)


def _unlabelled_sharers(facts: Facts, node: str) -> int:
    """Pods on a node of shared GPUs that no device is labelled with, where each device is labelled with one pod."""
    holders = {one.name for one in facts.gpu_holders if one.node == node}
    devices = facts.devices_on.get(node, ())
    pairs = {(device.key, device.workload) for device in devices if device.workload in holders}
    labelled = {workload for _, workload in pairs}
    one_each = len(pairs) <= len({device.key for device in devices})
    return len(holders - labelled) if labelled and one_each else 0


def _changes_labels(facts: Facts, node: str) -> bool:
    """Whether devices were labelled with several pods in turn: those of virtual GPUs carry each its slot (`vgpu`)."""
    named: dict[object, set[tuple[str, str]]] = {}
    for device in facts.devices_on.get(node, ()):
        if facts.is_labeled_with_holder(device) and not device.slot:
            named.setdefault(device.key, set()).add(device.workload)
    return any(len(pods) > 1 for pods in named.values())


def _devices_of(facts: Facts, holders: Sequence[Holder]) -> list[Device]:
    nodes = {one.node for one in holders}
    return [device for device in facts.gpu_devices if facts.node_of(device) in nodes]


def _keys(devices: Iterable[Device]) -> set[object]:
    return {device.key for device in devices}
