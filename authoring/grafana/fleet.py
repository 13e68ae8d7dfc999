"""The dashboard of the fleet: all GPUs by part of the cost, and the largest wasters."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from authoring.grafana.building import (
    ESTIMATE,
    GPUS,
    IN_CLUSTER,
    RATIO,
    USD,
    Panel,
    bar_gauge_panel,
    empty_dashboard,
    live_variables,
    stat_panel,
    table_panel,
    with_panels,
    with_size,
)
from authoring.grafana.live import Level, cost_parts_panels, query_panel

_FLEET = Level("cluster", IN_CLUSTER)
_UNITS = Level("business_unit", IN_CLUSTER)
_POOLS = Level("node_pool", IN_CLUSTER)


def dashboard() -> Dashboard:
    """Build the dashboard of the whole fleet, for SREs and finance partners."""
    measured = f"""(sum({_FLEET.series("gpus:sum", 'part=~"effective|waste"')}) > 0)"""
    now = [
        stat_panel("GPUs", GPUS, _FLEET.sum("capacity_gpus:sum"), "Physical GPUs on nodes."),
        stat_panel("Allocated", GPUS, _FLEET.sum("allocated_gpus:sum"), "GPUs that pods requested and hold."),
        stat_panel(
            "Utilization", RATIO, f"{_FLEET.part('effective')} / {measured}", "Effective ÷ (effective + waste)."
        ),
        stat_panel("Waste per hour", USD, f"{_FLEET.part('waste')} * $usd", f"Allocated and not used. {ESTIMATE}"),
        stat_panel(
            "Unallocated per hour",
            USD,
            f"{_FLEET.part('unallocated')} * $usd",
            f"Offered by nodes and held by no pod. {ESTIMATE}",
        ),
        stat_panel(
            "Stranded per hour",
            USD,
            f"{_FLEET.part('stranded')} * $usd",
            f"Paid for, but no pod can hold them. {ESTIMATE}",
        ),
    ]
    waste = _UNITS.part("waste", "business_unit")
    units = [
        ("GPUs", _UNITS.sum("allocated_gpus:sum", "business_unit"), GPUS),
        ("Effective", _UNITS.part("effective", "business_unit"), GPUS),
        ("Waste", waste, GPUS),
        ("Unmeasured", _UNITS.part("unmeasured", "business_unit"), GPUS),
        ("Waste, USD per hour (estimate)", f"{waste} * $usd", USD),
    ]
    top_wasters = f"topk(10, {waste} * $usd)"
    return with_panels(
        empty_dashboard("GPU fleet", "gpucost-fleet", "All GPUs by part of the cost, live."),
        live_variables(),
        [
            ("Now", [with_size(panel, 4, 5) for panel in now]),
            (
                "Every GPU",
                [
                    *cost_parts_panels(
                        "GPUs by part",
                        _FLEET,
                        "Each physical GPU is in exactly one part. The height of the stack is the number of GPUs.",
                    ),
                    query_panel("Allocated by cluster", GPUS, _FLEET.series("allocated_gpus:sum"), "{{cluster}}"),
                    query_panel(
                        "Utilization by cluster",
                        RATIO,
                        _FLEET.series("utilization:ratio"),
                        "{{cluster}}",
                        "Effective ÷ (effective + waste).",
                        maximum=1,
                    ),
                ],
            ),
            (
                "Business units",
                [
                    with_size(
                        bar_gauge_panel("Most waste, USD per hour", USD, top_wasters, "{{business_unit}}", ESTIMATE),
                        8,
                        10,
                    ),
                    with_size(table_panel("Business units", ESTIMATE, units, ["business_unit"]), 16, 10),
                ],
            ),
            (
                "Node pools",
                [
                    _of_pools("unallocated", "Offered by nodes and held by no pod."),
                    _of_pools("stranded", "No pod can hold them: MIG geometry, unhealthy or not ready."),
                ],
            ),
        ],
    )


def _of_pools(part: str, description: str) -> Panel:
    series = _POOLS.series("gpus:sum", f'part="{part}"')
    return query_panel(f"{part.capitalize()} by pool", GPUS, series, "{{cluster}} {{node_pool}}", description)
