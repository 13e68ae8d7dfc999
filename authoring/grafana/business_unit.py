"""A business unit: its GPUs, namespaces and pods, and which of these hold more than they use."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from authoring.grafana.building import (
    ESTIMATE,
    GPUS,
    IN_CLUSTER,
    PART,
    USD,
    choice,
    live_variables,
    new,
    number,
    ranking,
    rows_of,
    wide,
    with_panels,
)
from authoring.grafana.live import Level, course, parts_over_time

_OWN = f'{IN_CLUSTER},business_unit=~"$business_unit"'
_UNIT = Level("business_unit", _OWN)
_NAMESPACES = Level("namespace", _OWN)


def dashboard() -> Dashboard:
    """For a unit's lead."""
    units = f"label_values(business_unit:gpucost_allocated_gpus:sum{{{IN_CLUSTER}}}, business_unit)"
    allocated = _UNIT.sum("allocated_gpus:sum")
    effective, waste, unmeasured = map(_UNIT.part, ("effective", "waste", "unmeasured"))
    now = [
        number("GPUs held", GPUS, allocated),
        number("Cost per hour", USD, f"{allocated} * $usd", ESTIMATE),
        number("Waste per hour", USD, f"{waste} * $usd", f"Held and not used. {ESTIMATE}"),
        number("Unmeasured", GPUS, unmeasured, "Held by running pods, and nobody saw how busy they were: not waste."),
        number("Utilization", PART, f"{effective} / ({effective} + {waste} > 0)", "Of what is held and measured."),
    ]
    pods = f"pod:gpucost_allocated_gpus{{{_OWN}}}"
    labels = ("cluster", "namespace", "pod", "node_pool", "node")
    by = ", ".join(labels)
    columns = [
        ("GPUs", f"sum by ({by}) ({pods})", GPUS),
        ("Effective", f'sum by ({by}) (pod:gpucost_gpus{{{_OWN},part="effective"}})', GPUS),
        ("Utilization", f"max by ({by}) (pod:gpucost_utilization:ratio{{{_OWN}}})", PART),
        ("USD per hour (estimate)", f"sum by ({by}) ({pods}) * $usd", USD),
    ]
    namespace = "{{cluster}} {{namespace}}"
    return with_panels(
        new("GPU business unit", "gpucost-business-unit", "What a business unit's GPUs do, live."),
        [*live_variables(), choice("business_unit", "Business unit", units)],
        [
            ("Now", [wide(panel, width, 5) for panel, width in zip(now, (5, 5, 5, 4, 5), strict=True)]),
            (
                "Over time",
                parts_over_time("What they do", _UNIT, "Effective + waste + unmeasured = held."),
            ),
            (
                "Namespaces",
                [
                    course(
                        "GPUs by namespace", GPUS, _NAMESPACES.series("allocated_gpus:sum"), namespace, stacked=True
                    ),
                    course(
                        "Utilization by namespace", PART, _NAMESPACES.series("utilization:ratio"), namespace, most=1
                    ),
                    wide(
                        ranking(
                            "Most waste, USD per hour",
                            USD,
                            f"topk(10, {_NAMESPACES.part('waste', 'namespace')} * $usd)",
                            "{{namespace}}",
                            ESTIMATE,
                        ),
                        12,
                    ),
                    course(
                        "GPUs that pods wait for",
                        GPUS,
                        "sum by (cluster, namespace, resource) (max by (cluster, namespace, pod, resource, "
                        f"container) (kube_pod_container_resource_requests{{{IN_CLUSTER},"
                        'resource=~"nvidia_com_.+|aws_amazon_com_neuron.*",node=""}))',
                        "{{namespace}} {{resource}}",
                        "Requested by pods that are on no node: they cost nothing.",
                    ),
                ],
            ),
            (
                "Pods",
                [
                    wide(rows_of("Pods", ESTIMATE, columns, labels), 24, 12),
                    course(
                        "Least used pods",
                        PART,
                        f"bottomk(10, avg_over_time(pod:gpucost_utilization:ratio{{{_OWN}}}[30m]))",
                        "{{namespace}}/{{pod}}",
                        "Mean of the last half hour.",
                        width=24,
                    ),
                ],
            ),
        ],
    )
