"""The dashboard of a business unit: its GPUs, namespaces and pods, and which of them waste GPUs."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from authoring.grafana.building import (
    ESTIMATE,
    GPUS,
    IN_CLUSTER,
    RATIO,
    USD,
    bar_gauge_panel,
    empty_dashboard,
    label_variable,
    live_variables,
    stat_panel,
    table_panel,
    with_panels,
    with_size,
)
from authoring.grafana.live import Level, cost_parts_panels, query_panel
from gpucost.core.metering.accelerators import GPU_RESOURCES

_IN_UNIT = f'{IN_CLUSTER},business_unit=~"$business_unit"'
_UNIT = Level("business_unit", _IN_UNIT)
_NAMESPACES = Level("namespace", _IN_UNIT)


def dashboard() -> Dashboard:
    """Build the dashboard for the lead of a business unit."""
    units = f"label_values(business_unit:gpucost_allocated_gpus:sum{{{IN_CLUSTER}}}, business_unit)"
    allocated = _UNIT.sum("allocated_gpus:sum")
    effective, waste, unmeasured = map(_UNIT.part, ("effective", "waste", "unmeasured"))
    now = [
        stat_panel("Allocated GPUs", GPUS, allocated),
        stat_panel("Cost per hour", USD, f"{allocated} * $usd", ESTIMATE),
        stat_panel("Waste per hour", USD, f"{waste} * $usd", f"Allocated and not used. {ESTIMATE}"),
        stat_panel(
            "Unmeasured", GPUS, unmeasured, "Allocated to running pods without a utilization metric. Not waste."
        ),
        stat_panel(
            "Utilization", RATIO, f"{effective} / ({effective} + {waste} > 0)", "Effective ÷ (effective + waste)."
        ),
    ]
    pods = f"pod:gpucost_allocated_gpus{{{_IN_UNIT}}}"
    labels = ("cluster", "namespace", "pod", "node_pool", "node")
    by = ", ".join(labels)
    columns = [
        ("GPUs", f"sum by ({by}) ({pods})", GPUS),
        ("Effective", f'sum by ({by}) (pod:gpucost_gpus{{{_IN_UNIT},part="effective"}})', GPUS),
        ("Utilization", f"max by ({by}) (pod:gpucost_utilization:ratio{{{_IN_UNIT}}})", RATIO),
        ("USD per hour (estimate)", f"sum by ({by}) ({pods}) * $usd", USD),
    ]
    namespace = "{{cluster}} {{namespace}}"
    return with_panels(
        empty_dashboard("GPU business unit", "gpucost-business-unit", "GPUs of a business unit, live."),
        [*live_variables(), label_variable("business_unit", "Business unit", units)],
        [
            ("Now", [with_size(panel, width, 5) for panel, width in zip(now, (5, 5, 5, 4, 5), strict=True)]),
            ("Over time", cost_parts_panels("GPUs by part", _UNIT, "Effective + waste + unmeasured = allocated.")),
            (
                "Namespaces",
                [
                    query_panel(
                        "GPUs by namespace", GPUS, _NAMESPACES.series("allocated_gpus:sum"), namespace, stacked=True
                    ),
                    query_panel(
                        "Utilization by namespace", RATIO, _NAMESPACES.series("utilization:ratio"), namespace, maximum=1
                    ),
                    with_size(
                        bar_gauge_panel(
                            "Most waste, USD per hour",
                            USD,
                            f"topk(10, {_NAMESPACES.part('waste', 'namespace')} * $usd)",
                            "{{namespace}}",
                            ESTIMATE,
                        ),
                        12,
                    ),
                    query_panel(
                        "GPUs requested by pending pods",
                        GPUS,
                        "sum by (cluster, namespace, resource) (max by (cluster, namespace, pod, resource, "
                        f"container) (kube_pod_container_resource_requests{{{IN_CLUSTER},"
                        f'resource=~"{GPU_RESOURCES}",node=""}}))',
                        "{{namespace}} {{resource}}",
                        "Pods without a node. They cost nothing.",
                    ),
                ],
            ),
            (
                "Pods",
                [
                    with_size(table_panel("Pods", ESTIMATE, columns, labels), 24, 12),
                    query_panel(
                        "Pods with the lowest utilization",
                        RATIO,
                        f"bottomk(10, avg_over_time(pod:gpucost_utilization:ratio{{{_IN_UNIT}}}[30m]))",
                        "{{namespace}}/{{pod}}",
                        "Mean of the last 30 minutes.",
                        width=24,
                    ),
                ],
            ),
        ],
    )
