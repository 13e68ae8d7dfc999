"""The fleet: all GPUs, what became of them, and who wastes most."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from local.grafana.building import (
    ESTIMATE,
    GPUS,
    IN_CLUSTER,
    PART,
    USD,
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

_PARTS = f"cluster:gpucost_gpus:sum{{{IN_CLUSTER}}}"
_EFFECTIVE = f'sum(cluster:gpucost_gpus:sum{{{IN_CLUSTER},part="effective"}})'
_MEASURED = f'(sum(cluster:gpucost_gpus:sum{{{IN_CLUSTER},part=~"effective|waste"}}) > 0)'


def dashboard() -> Dashboard:
    """For SREs and finance partners."""
    now = [
        number("GPUs", GPUS, f"sum(cluster:gpucost_capacity_gpus:sum{{{IN_CLUSTER}}})", "Physical GPUs on nodes."),
        number("Allocated", GPUS, f"sum(cluster:gpucost_allocated_gpus:sum{{{IN_CLUSTER}}})", "GPUs that pods hold."),
        number("Utilization", PART, f"{_EFFECTIVE} / {_MEASURED}", "Of what pods hold and somebody measures."),
        number("Waste per hour", USD, f"{_of('waste')} * $usd", f"Held and not used. {ESTIMATE}"),
        number("Unallocated per hour", USD, f"{_of('unallocated')} * $usd", f"On offer, held by nobody. {ESTIMATE}"),
        number("Stranded per hour", USD, f"{_of('stranded')} * $usd", f"Paid for, and not for anybody. {ESTIMATE}"),
    ]
    by_unit = "business_unit:gpucost_gpus:sum"
    units = [
        ("GPUs", f"sum by (business_unit) (business_unit:gpucost_allocated_gpus:sum{{{IN_CLUSTER}}})", GPUS),
        ("Effective", _units("effective"), GPUS),
        ("Waste", _units("waste"), GPUS),
        ("Unmeasured", _units("unmeasured"), GPUS),
        ("Waste, USD per hour (estimate)", f"{_units('waste')} * $usd", USD),
    ]
    worst = f'topk(10, sum by (business_unit) ({by_unit}{{{IN_CLUSTER},part="waste"}}) * $usd)'
    return with_panels(
        new("GPU fleet", "gpucost-fleet", "What became of every GPU, live."),
        live_variables(),
        [
            ("Now", [wide(panel, 4, 5) for panel in now]),
            (
                "Every GPU",
                [
                    wide(
                        of_parts(
                            "What became of them",
                            f"sum by (part) ({_PARTS})",
                            "Each physical GPU is in exactly one part; the stack's height is how many there are.",
                        ),
                        16,
                        10,
                    ),
                    wide(live_note(), 8, 10),
                    wide(
                        over_time("Allocated by cluster", GPUS).with_target(
                            query(f"cluster:gpucost_allocated_gpus:sum{{{IN_CLUSTER}}}", "{{cluster}}")
                        ),
                        12,
                    ),
                    wide(
                        over_time("Utilization by cluster", PART, "Effective ÷ what is held and measured.")
                        .max(1)
                        .with_target(query(f"cluster:gpucost_utilization:ratio{{{IN_CLUSTER}}}", "{{cluster}}")),
                        12,
                    ),
                ],
            ),
            (
                "Business units",
                [
                    wide(ranking("Most waste, USD per hour", USD, worst, "{{business_unit}}", ESTIMATE), 8, 10),
                    wide(rows_of("Business units", ESTIMATE, units, ["business_unit"]), 16, 10),
                ],
            ),
            (
                "Node pools",
                [
                    wide(
                        over_time("Unallocated by pool", GPUS, "On offer, and nobody holds them.").with_target(
                            query(
                                f'node_pool:gpucost_gpus:sum{{{IN_CLUSTER},part="unallocated"}}',
                                "{{cluster}} {{node_pool}}",
                            )
                        ),
                        12,
                    ),
                    wide(
                        over_time("Stranded by pool", GPUS, "MIG geometry, unhealthy or not ready.").with_target(
                            query(
                                f'node_pool:gpucost_gpus:sum{{{IN_CLUSTER},part="stranded"}}',
                                "{{cluster}} {{node_pool}}",
                            )
                        ),
                        12,
                    ),
                ],
            ),
        ],
    )


def _of(part: str) -> str:
    return f'sum(cluster:gpucost_gpus:sum{{{IN_CLUSTER},part="{part}"}})'


def _units(part: str) -> str:
    return f'sum by (business_unit) (business_unit:gpucost_gpus:sum{{{IN_CLUSTER},part="{part}"}})'
