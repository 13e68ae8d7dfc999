"""The fleet: all GPUs, what became of them, and who wastes most."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from authoring.grafana.building import (
    ESTIMATE,
    GPUS,
    IN_CLUSTER,
    PART,
    USD,
    Panel,
    live_variables,
    new,
    number,
    ranking,
    rows_of,
    wide,
    with_panels,
)
from authoring.grafana.live import Level, course, parts_over_time

_FLEET = Level("cluster", IN_CLUSTER)
_UNITS = Level("business_unit", IN_CLUSTER)
_POOLS = Level("node_pool", IN_CLUSTER)


def dashboard() -> Dashboard:
    """For SREs and finance partners."""
    measured = f"""(sum({_FLEET.series("gpus:sum", 'part=~"effective|waste"')}) > 0)"""
    now = [
        number("GPUs", GPUS, _FLEET.sum("capacity_gpus:sum"), "Physical GPUs on nodes."),
        number("Allocated", GPUS, _FLEET.sum("allocated_gpus:sum"), "GPUs that pods hold."),
        number(
            "Utilization",
            PART,
            f"{_FLEET.part('effective')} / {measured}",
            "Of what pods hold and somebody measures.",
        ),
        number("Waste per hour", USD, f"{_FLEET.part('waste')} * $usd", f"Held and not used. {ESTIMATE}"),
        number(
            "Unallocated per hour",
            USD,
            f"{_FLEET.part('unallocated')} * $usd",
            f"On offer, held by nobody. {ESTIMATE}",
        ),
        number(
            "Stranded per hour",
            USD,
            f"{_FLEET.part('stranded')} * $usd",
            f"Paid for, and not for anybody. {ESTIMATE}",
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
    worst = f"topk(10, {waste} * $usd)"
    return with_panels(
        new("GPU fleet", "gpucost-fleet", "What became of every GPU, live."),
        live_variables(),
        [
            ("Now", [wide(panel, 4, 5) for panel in now]),
            (
                "Every GPU",
                [
                    *parts_over_time(
                        "What became of them",
                        _FLEET,
                        "Each physical GPU is in exactly one part; the stack's height is how many there are.",
                    ),
                    course("Allocated by cluster", GPUS, _FLEET.series("allocated_gpus:sum"), "{{cluster}}"),
                    course(
                        "Utilization by cluster",
                        PART,
                        _FLEET.series("utilization:ratio"),
                        "{{cluster}}",
                        "Effective ÷ what is held and measured.",
                        most=1,
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
                    _of_pools("unallocated", "On offer, and nobody holds them."),
                    _of_pools("stranded", "MIG geometry, unhealthy or not ready."),
                ],
            ),
        ],
    )


def _of_pools(part: str, description: str) -> Panel:
    series = _POOLS.series("gpus:sum", f'part="{part}"')
    return course(f"{part.capitalize()} by pool", GPUS, series, "{{cluster}} {{node_pool}}", description)
