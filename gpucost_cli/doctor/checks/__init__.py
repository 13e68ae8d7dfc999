"""All checks: pure functions from facts to findings, in the order in which they are shown."""

from gpucost_cli.doctor.checks import allocation_metrics, devices, jobs, nodes, signals, sources
from gpucost_cli.doctor.checks.model import Check, CheckContext, CheckFunction

__all__ = ["CHECKS", "Check", "CheckContext", "run_checks"]

CHECKS: tuple[CheckFunction, ...] = (
    sources.query_length,
    sources.selector,
    sources.clusters,
    jobs.jobs,
    sources.kube_state_metrics,
    sources.stale_exporters,
    sources.up,
    sources.intervals,
    sources.requests,
    allocation_metrics.families,
    allocation_metrics.needed_labels,
    nodes.labels,
    nodes.nodes_of_pods,
    nodes.profiles,
    signals.signals_available,
    signals.scales,
    signals.under_mig,
    devices.pod_mapping,
    devices.honor_labels,
    devices.host_names,
    devices.exporters,
    devices.idle_devices,
    devices.virtual_gpus,
    devices.resource_names,
    devices.mig_ids,
    devices.claims,
    devices.neuron,
)


def run_checks(context: CheckContext) -> list[Check]:
    """Run all checks of a cluster."""
    return [check for check_function in CHECKS for check in check_function(context)]
