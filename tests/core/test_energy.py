"""Energy: counters, power, who draws it, and its emissions; figures are computed by hand."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from authoring.emission_factors import parse_factors, render_table
from gpucost.core.amounts import CapacityCosts, Costs
from gpucost.core.attribution import AttributionRules, BusinessUnit, build_record
from gpucost.core.hour_record import HourRecord, Line
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.energy import gpu_energies
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import EnergySeries, Observation
from gpucost.core.pricing.emission_factor_table import KG_PER_KWH
from gpucost.core.pricing.emissions import Emissions
from gpucost.core.pricing.node_costs import Pricing
from tests.core.generated_observations import cluster_observations, metering_rules
from tests.core.single_node_cluster import MINUTE, START, device, node, observation

HOUR_WINDOW = IntervalMs(START, START + 60 * MINUTE)
KWH = Decimal(3_600_000)
RULES = AttributionRules(Pricing.constant(Decimal(2)), emissions=Emissions())


def counter(*samples: tuple[float, float], target: str = "d") -> EnergySeries:
    """A counter with samples (minute, joules)."""
    points = tuple((START + int(minute * MINUTE), Decimal(str(joules))) for minute, joules in samples)
    return EnergySeries("n1", "GPU-0", target, is_counter=True, increase=None, samples=points)


def increased(joules: Decimal, uuid: str = "GPU-0") -> EnergySeries:
    return EnergySeries("n1", uuid, "d", is_counter=True, increase=joules)


def drawn(series: Sequence[EnergySeries], first: float = 0, last: float = 60) -> tuple[float, float]:
    """Joules and measured minutes between two minutes of the hour."""
    energies = gpu_energies(series, {}, HOUR_WINDOW)
    if not energies:
        return 0, 0
    time = IntervalMs(START + int(first * MINUTE), START + int(last * MINUTE))
    joules, measured_ms = energies["n1", "GPU-0"].during(time)
    return float(joules), measured_ms / MINUTE


def attributed(observed: Observation, rules: AttributionRules = RULES) -> HourRecord:
    return build_record(meter(observed, MeteringRules()), rules)


def capacity_of(record: HourRecord) -> CapacityCosts:
    assert record.totals is not None and record.totals.capacity is not None
    return record.totals.capacity


def with_energy(*series: EnergySeries, devices: int = 1) -> Observation:
    """The pod holds GPU-0 all hour; there are `devices` more GPUs, which are idle."""
    others = tuple(replace(device(labeled=False), uuid=f"GPU-{number}") for number in range(1, devices + 1))
    labels = {"label_topology_kubernetes_io_zone": "eu-west-1a"}
    return replace(observation(devices=(device(), *others), nodes=(node(2, labels),)), energy=series)


def test_counter_is_read_between_its_last_samples_before_the_hour_and_in_it() -> None:
    """600 J a minute; the hour's energy is that from minute -0.5 to minute 59.5."""
    samples = [(minute + 0.5, 600 * (minute + 1)) for minute in range(-1, 60)]
    assert drawn([counter(*samples)]) == (36_000, 60)


def test_consecutive_hours_add_up_to_the_counter() -> None:
    samples = [(minute + 0.25, 1000 * minute**2) for minute in range(0, 150)]
    energies = []
    for number in (0, 1):
        window = IntervalMs(START + 60 * number * MINUTE, START + 60 * (number + 1) * MINUTE)
        energies.append(gpu_energies([counter(*samples)], {}, window)["n1", "GPU-0"].during(window)[0])
    assert sum(energies) == 1000 * 119**2


def test_counter_that_started_again_counts_from_zero() -> None:
    """As Prometheus' `increase`: 1000 J until minute 10, and 50 J after the driver was loaded again."""
    assert drawn([counter((0, 9000), (10, 10_000), (11, 50), (60, 50))]) == (1050, 60)


def test_gap_of_a_counter_loses_nothing() -> None:
    assert drawn([counter((0, 0), (10, 6000), (40, 24_000), (60, 36_000))]) == (36_000, 60)
    assert drawn([counter((0, 0), (10, 6000), (40, 24_000), (60, 36_000))], 15, 20) == (3000, 5)


def test_time_before_the_first_and_after_the_last_sample_is_unknown() -> None:
    assert drawn([counter(*((minute, 600 * minute) for minute in range(20, 41)))]) == (12_000, 20)
    assert drawn([counter((30, 5))]) == (0, 0)
    assert drawn([]) == (0, 0)


def test_two_jobs_with_the_same_counter_do_not_look_as_if_it_fell() -> None:
    first = counter(*((minute, 600 * minute) for minute in range(0, 61)))
    late = counter(*((minute + 0.1, 600 * minute - 300) for minute in range(0, 60)), target="e/other")
    assert drawn([first, late]) == (36_000, 60)


def test_copies_of_a_gpu_count_once() -> None:
    """A MIG device's series and each sharer's have the value of the GPU."""
    assert drawn([increased(Decimal(7200)), increased(Decimal(7200))]) == (7200, 60)
    samples = [(minute, 600 * minute) for minute in range(0, 61)]
    assert drawn([counter(*samples), counter(*samples)]) == (36_000, 60)


@pytest.mark.parametrize("joules", [-1, 36_000_001])
def test_increase_that_no_gpu_can_draw_is_unknown(joules: int) -> None:
    assert drawn([increased(Decimal(joules))]) == (0, 0)


def test_fall_that_is_no_new_start_is_unknown() -> None:
    """A counter that shows 7 GJ after one minute did not start at 0."""
    assert drawn([counter((0, 7e9), (1, 7e9 - 5), (2, 7e9 + 600))]) == (605, 1)


def test_power_is_energy_of_the_scrapes_time() -> None:
    """300 W at the scrapes of minutes 0 to 9, and none until minute 30: energy is unknown in the gap."""
    samples = tuple((START + minute * MINUTE, Decimal(300)) for minute in (*range(10), *range(30, 60)))
    power = EnergySeries("n1", "GPU-0", "d", is_counter=False, increase=None, samples=samples)
    assert drawn([power]) == (300 * 60 * 40, 40)


def test_counter_takes_precedence_over_power() -> None:
    power = EnergySeries("n1", "GPU-0", "d", is_counter=False, increase=None, samples=((START, Decimal(300)),))
    assert drawn([power, increased(Decimal(7200))]) == (7200, 60)


def test_line_idle_and_total_by_hand() -> None:
    """0.3 kWh of the pod's GPU, 0.06 kWh of the idle one; 0.2786 kg/kWh in Ireland, times the PUE of 1.135."""
    record = attributed(with_energy(increased(KWH * Decimal("0.3")), increased(KWH * Decimal("0.06"), "GPU-1")))
    (line,) = record.lines
    assert (line.energy_kwh, line.energy_gpu_hours) == (300_000_000_000, 10**12)
    assert line.co2e_kg == 94_863_300_000
    capacity = capacity_of(record)
    assert (capacity.device_energy_kwh, capacity.idle_energy_kwh) == (360_000_000_000, 60_000_000_000)
    assert capacity.unattributed_energy_kwh == 0
    assert (capacity.device_co2e_kg, capacity.idle_co2e_kg) == (113_835_960_000, 18_972_660_000)


def test_energy_that_was_not_measured_is_null() -> None:
    record = attributed(with_energy())
    (line,) = record.lines
    assert (line.energy_kwh, line.energy_gpu_hours, line.co2e_kg) == (None, None, None)
    figures = line.costs().figures() | capacity_of(record).figures()
    assert {figures[name] for name in figures if "energy" in name or "co2e" in name} == {None}


def test_energy_of_a_gpu_without_samples_is_null() -> None:
    record = attributed(with_energy(increased(KWH, "GPU-1")))
    assert [line.energy_kwh for line in record.lines] == [None]
    assert capacity_of(record).device_energy_kwh == capacity_of(record).idle_energy_kwh == 10**12


def test_energy_of_an_unknown_region_has_no_emissions() -> None:
    record = attributed(replace(with_energy(increased(KWH)), nodes=(node(2),)))
    (line,) = record.lines
    assert (line.energy_kwh, line.co2e_kg) == (10**12, None)
    assert line.costs().energy_without_factor_kwh == 10**12
    assert line.costs().figures()["co2e_kg"] is None
    assert capacity_of(record).figures()["device_co2e_kg"] is None


def test_emission_factor_of_zero_is_valid() -> None:
    rules = replace(RULES, emissions=Emissions(kg_per_kwh_by_cluster={"c": Decimal(0)}))
    (line,) = attributed(with_energy(increased(KWH)), rules).lines
    assert line.co2e_kg == 0
    assert line.costs().figures()["co2e_kg"] == 0


def test_factor_of_the_cluster_precedes_that_of_the_region_and_the_table() -> None:
    emissions = Emissions(Decimal(1), {"eu-west-1": Decimal("0.5")}, {"c": Decimal("0.1")})
    assert emissions.kg_per_kwh("c", "eu-west-1") == Fraction(1, 10)
    assert emissions.kg_per_kwh("d", "eu-west-1") == Fraction(1, 2)
    assert emissions.kg_per_kwh("d", "eu-north-1") == Fraction(KG_PER_KWH["eu-north-1"])
    assert emissions.kg_per_kwh("d", "mars-1") is None


def test_energy_of_a_gpu_held_without_any_use_is_unused() -> None:
    idle = replace(with_energy(increased(KWH)), devices=(device(total="0"),))
    assert [line.costs().unused_energy_kwh for line in attributed(idle).lines] == [10**12]
    assert [line.costs().unused_energy_kwh for line in attributed(with_energy(increased(KWH))).lines] == [0]


def test_partial_sums_show_how_much_was_measured() -> None:
    """Of two lines with one GPU-hour each, one has energy."""
    (measured,) = attributed(with_energy(increased(KWH))).lines
    (unmeasured,) = attributed(with_energy()).lines
    total = Costs.total([measured.costs(), unmeasured.costs()])
    assert (total.energy_kwh, total.energy_gpu_hours, total.allocated_gpu_hours) == (10**12, 10**12, 2 * 10**12)


def _sum(lines: Sequence[Line], name: str) -> int:
    return sum(getattr(line, name) or 0 for line in lines)


@settings(max_examples=300, deadline=None)
@given(cluster_observations(), metering_rules)
def test_energy_of_lines_idle_and_unattributed_add_up(observed: Observation, metering: MeteringRules) -> None:
    """To the last digit, also if a shared unit's lines are distributed."""
    units = (BusinessUnit("platform", namespaces=("a",), distribute="proportional"),)
    emissions = Emissions(kg_per_kwh_by_cluster={"c": Decimal("0.3786")})
    rules = AttributionRules(Pricing.constant(Decimal(2)), units, emissions=emissions)
    record = build_record(meter(observed, metering), rules)
    if record.totals is None or record.totals.capacity is None:
        return
    lines, capacity = record.lines, record.totals.capacity
    without_pods = capacity.idle_energy_kwh + capacity.unattributed_energy_kwh
    assert _sum(lines, "energy_kwh") + without_pods == capacity.device_energy_kwh
    emitted_without_pods = capacity.idle_co2e_kg + capacity.unattributed_co2e_kg
    assert _sum(lines, "co2e_kg") + emitted_without_pods == capacity.device_co2e_kg
    assert min(capacity.idle_energy_kwh, capacity.unattributed_energy_kwh) >= 0
    assert all(line.energy_gpu_hours is None or line.energy_gpu_hours <= line.allocated_gpu_hours for line in lines)


def test_table_is_read_from_its_source() -> None:
    """Tons per kWh become kg, and a region may refer to the grid of its NERC region."""
    regions = "  PUE_AVG: 1.135,\n    [AWS_REGIONS.US_EAST_1]: US_NERC_REGIONS_EMISSIONS_FACTORS.SERC,\n"
    regions += "    [AWS_REGIONS.EU_WEST_3]: 0.0000511,\n    [AWS_REGIONS.UNKNOWN]: 0.00039278188, // average\n"
    pue, factors = parse_factors(regions, "  RFC: 0.000410608,\n  SERC: 0.000379069,\n")
    assert pue == Decimal("1.135")
    assert factors == {"us-east-1": Decimal("0.379069"), "eu-west-3": Decimal("0.0511")}
    table: dict[str, Any] = {}
    exec(render_table("abc", "2024-03-25", pue, factors), table)
    assert table["KG_PER_KWH"] == {"eu-west-3": "0.0511", "us-east-1": "0.379069"}
    with pytest.raises(ValueError, match="not those of Cloud Carbon Footprint"):
        parse_factors("", "")
