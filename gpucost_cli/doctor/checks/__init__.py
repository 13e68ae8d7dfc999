"""All checks: pure functions from facts to findings, in the order in which they are shown."""

from dataclasses import replace

from gpucost_cli.doctor.checks import (
    accelerators,
    allocation_metrics,
    devices,
    gpu_fractions,
    inference,
    jobs,
    nodes,
    prices,
    signals,
    sources,
    unexplained,
)
from gpucost_cli.doctor.checks.model import Check, CheckContext, DoctorCheck

__all__ = ["CHECKS", "Check", "CheckContext", "run_checks"]

CHECKS: tuple[DoctorCheck, ...] = (
    sources.check_query_length,
    sources.check_selector,
    sources.check_single_cluster,
    jobs.check_jobs,
    sources.check_kube_state_metrics,
    sources.check_stale_exporters,
    sources.check_up_series,
    sources.check_scrape_intervals,
    sources.check_scrape_gaps,
    sources.check_gpu_requests,
    unexplained.check_unexplained,
    allocation_metrics.check_metric_families,
    allocation_metrics.check_labels_that_settings_need,
    allocation_metrics.check_namespaces_of_business_units,
    nodes.check_node_labels,
    nodes.check_nodes_of_pods,
    nodes.check_mig_profiles,
    prices.check_prices,
    signals.check_signals,
    signals.check_signal_scales,
    signals.check_stuck_signals,
    signals.check_signals_under_mig,
    signals.check_energy,
    devices.check_pod_mapping,
    devices.check_honor_labels,
    devices.check_host_names,
    devices.check_targets_in_turn,
    devices.check_nodes_without_devices,
    devices.check_idle_devices,
    devices.check_virtual_gpus,
    devices.check_processes,
    devices.check_resource_names,
    devices.check_mig_device_labels,
    devices.check_claim_labels,
    devices.check_claims_of_neuron,
    devices.check_several_claims,
    gpu_fractions.check_vgpus,
    gpu_fractions.check_reservations,
    accelerators.check_accelerators,
    inference.check_inference_servers,
)


def run_checks(context: CheckContext) -> list[Check]:
    """Run all checks of a cluster. A finding is explained only by those of earlier checks."""
    checks: list[Check] = []
    with_change: set[str] = set()
    for doctor_check in CHECKS:
        for check in doctor_check(context):
            causes = [name for name in check.explained_by if name in with_change]
            checks.append(replace(check, explained_by=causes))
            if check.change:
                with_change.add(check.name)
    return checks
