"""Checks of the exporters of AWS's, AMD's and Intel's accelerators."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from gpucost.core.metering.accelerators import ACCELERATORS, Accelerator, vendor_of
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Status, doctor_check, first_few
from gpucost_cli.doctor.facts import REQUESTS, ObservedDevice


@doctor_check(
    "the GPU exporter",
    """
Neuron | pods hold NeuronCores, and `neuroncore_utilization_ratio` has no series | neuron-monitor with its Prometheus exporter
AMD GPU, Gaudi, Intel GPU | nodes have such devices or pods hold them, and their exporter has no series | the exporter, with the command that installs it
nodes of AMD GPU, Gaudi, Intel GPU | the labels of devices name no node | a `relabel_configs` rule that writes the label `node`
pods of AMD GPU, Gaudi | pods hold devices, and no device is labeled with any of them | the kubelet's pod-resources socket, mounted into the exporter
pods of Neuron | several pods of a node hold NeuronCores, and no series is labeled with any of them | `neuron-monitor-k8s-info.py`, Neuron 2.23 or later
AMD GPU, Gaudi, Intel GPU on every node | nodes with such devices have no device series | the DaemonSet's tolerations and node selector
""",  # noqa: E501 - one line for each row
)
def check_accelerators(context: CheckContext) -> Iterable[Check]:
    """Check for each vendor whether the utilization of its devices is measured."""
    for accelerator in ACCELERATORS:
        yield from _check_vendor(context, accelerator)


def _check_vendor(context: CheckContext, accelerator: Accelerator) -> Iterable[Check]:
    facts, name = context.facts, accelerator.display_name
    held = [resource for resource in facts.resources if re.fullmatch(accelerator.resource_pattern, resource)]
    if held:
        yield context.check(
            f"{name} requests", REQUESTS, "recommended", series=sum(facts.resources[resource] for resource in held)
        )
    reported = [signal.name for signal in accelerator.signals if facts.has_series_of_any(signal.name)]
    if reported:
        yield context.check(name, reported[0], "recommended")
        yield from _check_devices(context, accelerator, reported[0])
        return
    signal = accelerator.signals[0].name
    nodes = sorted(
        node.name for node in facts.nodes.values() if any(vendor_of(key) == accelerator.vendor for key in node.capacity)
    )
    fault = None
    if held:
        finding = f"pods hold {first_few(held)}, and {signal} has no series: their utilization is unmeasured"
        fault = Fault(finding, accelerator.install)
    elif nodes and accelerator.reports_idle_devices:
        finding = f"nodes have {name} devices ({first_few(nodes)}), and {signal} has no series"
        fault = Fault(finding, accelerator.install)
    elif accelerator.reports_idle_devices:
        return  # the cluster has no devices of this vendor
    status: Status = "missing" if fault else context.status_without_need
    yield context.check(name, signal, "recommended", fault, status=status, series=0)


def _check_devices(context: CheckContext, accelerator: Accelerator, signal: str) -> Iterable[Check]:
    """Check whether the devices' labels name their nodes and pods, and whether every node has devices."""
    facts, name = context.facts, accelerator.display_name
    devices = [device for device in facts.devices if device.vendor == accelerator.vendor]
    if not devices:
        return
    if not accelerator.reports_idle_devices:
        yield from _check_pods(context, accelerator, signal, devices)
        return
    series = len({device.key for device in devices})
    without_node = [device for device in devices if not facts.node_of(device)]
    if facts.nodes:
        fault = None
        if without_node:
            fault = Fault(
                f"the labels of {_count(without_node)} devices name no node of kube-state-metrics",
                f"scrape configuration of {accelerator.exporter}: relabel_configs: {{source_labels: "
                "[__meta_kubernetes_pod_node_name], target_label: node}",
            )
        yield context.check(f"nodes of {name}", signal, "recommended", fault, series=series - _count(without_node))
    yield from _check_pods(context, accelerator, signal, devices)
    if not without_node:
        names = [
            node.name
            for node in facts.nodes.values()
            if any(vendor_of(key) == accelerator.vendor for key in node.capacity)
        ]
        without = [node for node in names if not facts.devices_by_node.get(node)]
        fault = None
        if without:
            fault = Fault(
                f"{len(without)} of {len(names)} nodes with {name} devices have no series ({first_few(without)})",
                f"{accelerator.exporter} DaemonSet: tolerations: [{{operator: Exists}}], and a node selector that "
                "matches these nodes",
            )
        yield context.check(f"{name} on every node", signal, "recommended", fault, series=len(names) - len(without))


def _check_pods(
    context: CheckContext, accelerator: Accelerator, signal: str, devices: Sequence[ObservedDevice]
) -> Iterable[Check]:
    """Check whether devices are labeled with the pods that hold them, where several pods of a node hold some."""
    facts, name = context.facts, accelerator.display_name
    holders = [holder for holder in facts.holders if vendor_of(holder.resource) == accelerator.vendor]
    if not accelerator.reports_idle_devices:  # a pod that is alone on its node has all of the node's use
        pods_by_node = Counter(node for node, _ in {(holder.node, holder.name) for holder in holders})
        holders = [holder for holder in holders if pods_by_node[holder.node] > 1]
    if not holders or not accelerator.pod_labels_from:
        return
    claimed = [device for device in devices if facts.is_labeled_with_holder(device)]
    fault = None
    if not claimed:
        fault = Fault(
            f"{len(holders)} pods hold {name} devices, and no device series is labeled with any of them",
            f"{accelerator.exporter}: {accelerator.pod_labels_from}",
        )
    yield context.check(f"pods of {name}", signal, "recommended", fault, series=_count(claimed))


def _count(devices: Sequence[ObservedDevice]) -> int:
    return len({device.key for device in devices})
