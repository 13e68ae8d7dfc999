"""Tables for people: the sum first, what wastes most first, and a dash with its reason for what is unknown."""

import io
from datetime import UTC, datetime, timedelta

from rich.console import Console

from gpucost.core.amounts import SCALE, CapacityCosts, Costs, Totals
from gpucost.core.hour_record import HourRecord, Line
from gpucost_cli.rendering import print_table
from gpucost_cli.usage_tables import hours_tables, joined_notes
from tests.records import amount, line

HOUR = datetime(2026, 11, 28, 13, tzinfo=UTC)
DOCTOR = "gpucost doctor --prometheus http://127.0.0.1:9090 --header 'X-Scope-OrgID=[a]'"


def record(*lines: Line, hour: datetime = HOUR, notes: tuple[str, ...] = (), capacity: int = 10) -> HourRecord:
    costs = Costs.total(each.costs() for each in lines)
    parts = CapacityCosts(
        capacity_gpu_hours=capacity * SCALE,
        unpriced_capacity_gpu_hours=capacity * SCALE,
        unallocated_gpu_hours=capacity * SCALE - costs.allocated_gpu_hours,
    )
    return HourRecord("a", hour, "provisional", None, Totals(costs, parts), lines, notes)


def unpriced(unit: str, held: int, used: int | None) -> Line:
    unknown = used is None
    return line()._replace(
        business_unit=unit,
        allocated_gpu_hours=held * SCALE,
        effective_gpu_hours=None if used is None else used * SCALE,
        unmeasured_gpu_hours=held * SCALE if unknown else 0,
        allocated_usd=None,
        effective_usd=None,
        waste_usd=None,
        unmeasured_usd=None,
        price_source="",
        gpu_hourly_usd=None,
        energy_kwh=None,
        energy_gpu_hours=None,
        co2e_kg=None,
        used_beyond_allocation_gpu_hours=0,
    )


def printed(*records: HourRecord, each_hour: bool = False) -> list[list[str]]:
    file = io.StringIO()
    for part in hours_tables(records, doctor=DOCTOR, each_hour=each_hour):
        print_table(part, Console(width=100, file=file))
    return [cells for text in file.getvalue().splitlines() if (cells := text.split())]


def test_unknown_figures_are_dashes_with_their_reasons() -> None:
    rows = printed(record(unpriced("blind", 3, None), unpriced("busy", 2, 2), unpriced("idle", 4, 1)))
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["idle"] == ["4.000", "1.000", "3.000", "0.000", "75.0%", "—", "—"]
    assert by_name["busy"] == ["2.000", "2.000", "0.000", "0.000", "0.0%", "—", "—"]
    assert by_name["blind"] == ["3.000", "—", "—", "3.000", "—", "—", "—"]
    assert by_name["unallocated"][:3] == ["1.000", "—", "10.0%"], "GPU-hours and shares need no price"
    assert next(row[0] for row in rows if row[0] in {"idle", "busy", "blind"}) == "idle", "most waste first"
    texts = [" ".join(row) for row in rows]
    run = f"To see what is missing, run: {DOCTOR}"
    assert f"— effective, waste, waste %: no metric measured the GPUs of these rows. {run}" in texts
    assert [
        text for text in texts if text.startswith("— cost: no node of these rows has a price; notes of the hours say")
    ]
    assert not [text for text in texts if "$0.00" in text]
    assert "sorted by waste in GPU-hours; ≥: at least, because a part is unmeasured" in texts
    assert "most waste: idle, 3.000 GPU-hours, 75.0% of its GPU-hours; its top waster: " in " ".join(texts)


def test_gpus_without_pods_are_named_if_they_are_more_than_the_waste() -> None:
    """Of 10 GPUs, pods hold 4 and use 1, or hold 8 and use 2."""
    few, many = printed(record(unpriced("a", 4, 1))), printed(record(unpriced("a", 8, 2)))
    sentence = "more than the waste of pods: unallocated GPUs, 6.000 GPU-hours; offered, and no pod held it"
    assert sentence in " ".join(" ".join(row) for row in few)
    assert "more than the waste" not in " ".join(" ".join(row) for row in many)


def priced(unit: str, held: int, used: int, unmeasured: int, usd_per_gpu_hour: str) -> Line:
    hourly = amount(usd_per_gpu_hour)
    return unpriced(unit, held, used)._replace(
        unmeasured_gpu_hours=unmeasured * SCALE,
        allocated_usd=held * hourly,
        effective_usd=used * hourly,
        waste_usd=(held - used - unmeasured) * hourly,
        unmeasured_usd=unmeasured * hourly,
    )


def test_waste_percent_is_of_cost_and_at_least_where_a_part_is_unmeasured() -> None:
    """Two lines of a unit at $1 and $9 a GPU-hour: 2 of 8 GPU-hours are wasted (25%), and $18 of $40 (45%)."""
    mixed = [priced("mixed", 4, 4, 0, "1"), priced("mixed", 4, 2, 0, "9")]
    half = [priced("half", 10, 2, 5, "1")]  # $3 of $10 are wasted, and $5 may be
    hardly = [priced("hardly", 100, 4, 91, "0.01")]  # 9% is measured
    by_name = {row[0]: row[1:] for row in reversed(printed(record(*mixed, *half, *hardly, capacity=200)))}
    assert by_name["mixed"] == ["8.0", "6.0", "2.0", "0.0", "45.0%", "$40.00", "$18.00"]
    assert by_name["half"] == ["10.0", "2.0", "3.0", "5.0", "≥30.0%", "$10.00", "$3.00"]
    assert by_name["hardly"] == ["100.0", "4.0", "5.0", "91.0", "—", "$1.00", "$0.05"]
    assert by_name["all"] == ["units", "118.0", "12.0", "10.0", "96.0", "≥41.2%", "$51.00", "$21.05"]


def test_least_waste_is_rounded_down() -> None:
    """Of $1,000, $300.60 are wasted: not at least 30.1%. Without an unmeasured part, it is 30.06%, which is 30.1%."""
    rows = {
        row[0]: row[1:]
        for row in reversed(
            printed(
                record(
                    priced("least", 1000, 499, 200, "1")._replace(waste_usd=amount("300.6")),
                    priced("exact", 1000, 699, 0, "1")._replace(waste_usd=amount("300.6")),
                    capacity=4000,
                )
            )
        )
    }
    assert [rows[name][4] for name in ("least", "exact")] == ["≥30.0%", "30.1%"]


def test_columns_have_the_words_of_the_page() -> None:
    titles = [row for row in printed(record(priced("idle", 4, 1, 0, "2"))) if "GPU-hours" in row and "effective" in row]
    assert titles == [
        ["business", "unit", "GPU-hours", "effective", "waste", "unmeasured", "of", "cost", "cost", "cost"]
    ]


def test_decimals_are_the_same_in_a_column() -> None:
    """From 10 GPU-hours on, one decimal; from $100 on, none. A little is not shown as nothing."""
    lines = [priced("large", 100, 99, 0, "2"), priced("small", 1, 0, 0, "0.4"), priced("least", 1, 1, 0, "0")]
    least = lines[2]._replace(allocated_gpu_hours=SCALE // 1000, effective_gpu_hours=SCALE // 1000)
    by_name = {row[0]: row[1:] for row in reversed(printed(record(*lines[:2], least, capacity=200)))}
    assert by_name["large"] == ["100.0", "99.0", "1.0", "0.0", "1.0%", "$200", "$2"]
    assert by_name["small"] == ["1.0", "0.0", "1.0", "0.0", "100.0%", "<$1", "<$1"]
    assert by_name["least"] == ["<0.1", "<0.1", "0.0", "0.0", "$0", "$0"], "a share of nothing is blank"


def test_sum_is_before_the_hours() -> None:
    records = [record(unpriced("idle", 4, 1), hour=HOUR + timedelta(hours=number)) for number in range(2)]
    rows = [row[:2] for row in printed(*records, each_hour=True) if row[0] == "idle"]
    assert rows == [["idle", "8.000"], ["idle", "4.000"], ["idle", "4.000"]]
    assert [row[:2] for row in printed(*records) if row[0] == "idle"] == [["idle", "8.000"]]


def test_notes_of_several_hours_and_nodes_are_joined() -> None:
    reason = "list-price; the built-in list prices do not have this type in us-west-2. Use AWS credentials"
    notes = (f"no price for node n1 (p5.48xlarge) from {reason}", f"no price for node n2 (g5.xlarge) from {reason}")
    of_all = "g5 is priced at x"
    hours = [record(notes=(of_all, *notes)), record(notes=(of_all,), hour=HOUR + timedelta(hours=1))]
    no_figures = HourRecord(
        "a", HOUR + timedelta(hours=2), "incomplete", None, None, notes=("low coverage", "partial hour: x")
    )
    assert joined_notes([*hours, no_figures]) == [
        "g5 is priced at x (2 of 3 hours)",
        "no price for 2 nodes (g5.xlarge, p5.48xlarge): the built-in list prices do not have this type in us-west-2. "
        "Use AWS credentials (1 of 3 hours)",
        "no figures: partial hour: x; low coverage (1 of 3 hours)",
    ]


def test_energy_says_of_which_gpus_it_is() -> None:
    capacity = CapacityCosts(
        capacity_gpu_hours=10 * SCALE,
        unallocated_gpu_hours=10 * SCALE,
        node_cost_usd=SCALE,
        unallocated_usd=SCALE,
        device_energy_kwh=2 * SCALE,
        idle_energy_kwh=2 * SCALE,
        device_energy_gpu_hours=4 * SCALE,
    )
    hour = HourRecord("a", HOUR, "complete", None, Totals(Costs(), capacity))
    texts = [" ".join(row) for row in printed(hour)]
    (energy,) = (text for text in texts if text.startswith("energy"))
    assert energy.startswith("energy of 4.0 of 10.0 GPU-hours, the others unmetered: 2.000 kWh")
