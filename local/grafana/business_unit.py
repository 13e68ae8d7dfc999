"""A business unit: its GPUs, namespaces and pods, and which of these hold more than they use."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from local.grafana.building import (
    ESTIMATE,
    GPUS,
    IN_CLUSTER,
    PART,
    USD,
    choice,
    live_note,
    live_variables,
    new,
    number,
    of_parts,
    over_time,
    query,
    ranking,
    rows_of,
    wide,
    with_panels,
)

_OWN = f'{IN_CLUSTER},business_unit=~"$business_unit"'
_PARTS = f"business_unit:gpucost_gpus:sum{{{_OWN}}}"


def dashboard() -> Dashboard:
    """For a unit's lead."""
    units = f"label_values(business_unit:gpucost_allocated_gpus:sum{{{IN_CLUSTER}}}, business_unit)"
    allocated = f"sum(business_unit:gpucost_allocated_gpus:sum{{{_OWN}}})"
    effective, waste, unmeasured = (_of(part) for part in ("effective", "waste", "unmeasured"))
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
                [
                    wide(
                        of_parts("What they do", f"sum by (part) ({_PARTS})", "Effective + waste + unmeasured = held."),
                        16,
                        10,
                    ),
                    wide(live_note(), 8, 10),
                ],
            ),
            (
                "Namespaces",
                [
                    wide(
                        over_time("GPUs by namespace", GPUS, stacked=True).with_target(
                            query(f"namespace:gpucost_allocated_gpus:sum{{{_OWN}}}", namespace)
                        ),
                        12,
                    ),
                    wide(
                        over_time("Utilization by namespace", PART)
                        .max(1)
                        .with_target(query(f"namespace:gpucost_utilization:ratio{{{_OWN}}}", namespace)),
                        12,
                    ),
                    wide(
                        ranking(
                            "Most waste, USD per hour",
                            USD,
                            f'topk(10, sum by (namespace) (namespace:gpucost_gpus:sum{{{_OWN},part="waste"}}) * $usd)',
                            "{{namespace}}",
                            ESTIMATE,
                        ),
                        12,
                    ),
                    wide(
                        over_time(
                            "GPUs that pods wait for", GPUS, "Requested by pods that are on no node: they cost nothing."
                        ).with_target(
                            query(
                                "sum by (cluster, namespace, resource) (max by (cluster, namespace, pod, resource, "
                                f"container) (kube_pod_container_resource_requests{{{IN_CLUSTER},"
                                'resource=~"nvidia_com_.+|aws_amazon_com_neuron.*",node=""}))',
                                "{{namespace}} {{resource}}",
                            )
                        ),
                        12,
                    ),
                ],
            ),
            (
                "Pods",
                [
                    wide(rows_of("Pods", ESTIMATE, columns, labels), 24, 12),
                    wide(
                        over_time("Least used pods", PART, "Mean of the last half hour.").with_target(
                            query(
                                f"bottomk(10, avg_over_time(pod:gpucost_utilization:ratio{{{_OWN}}}[30m]))",
                                "{{namespace}}/{{pod}}",
                            )
                        ),
                        24,
                    ),
                ],
            ),
        ],
    )


def _of(part: str) -> str:
    return f'sum(business_unit:gpucost_gpus:sum{{{_OWN},part="{part}"}})'
