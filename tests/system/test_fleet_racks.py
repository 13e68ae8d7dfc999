"""Racks without room for a job, and parts of GPUs: amounts computed by hand, and notes."""

import pytest

from gpucost_devstack.fleet.scenarios import all_scenarios
from gpucost_devstack.fleet.scenarios.racks import CLUSTER_UUID
from tests.system.fleet_blocks import BASE
from tests.system.fleet_truth import PRICE, Hours, ask

GPU_HOURS = [
    ("rack-half-used", 36, 0),  # a job of 36 fits
    ("rack-half-of-a-job-free", 0, 32),
    ("rack-idle", 72, 0),
    ("rack-half-for-a-while", 18, 16),  # half an hour with 36 free, and half an hour with 32
    ("rack-with-failed-tray", 18, 18),  # half an hour with 36 free; then 32, and 4 that are not ready
    ("two-racks-half-used", 0, 64),
    ("rack-of-another-pool", 36, 0),
]
RACKS = [
    scenario
    for scenario in all_scenarios()
    if scenario.name in {"four-quarters-of-a-gpu", *(name for name, _, _ in GPU_HOURS)}
]


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory, fleet_url: str) -> Hours:
    return ask(RACKS, fleet_url, BASE, tmp_path_factory.mktemp("racks"))


@pytest.mark.parametrize(("name", "unallocated", "stranded"), GPU_HOURS)
def test_gpu_hours_computed_by_hand(attributed: Hours, name: str, unallocated: int, stranded: int) -> None:
    totals = attributed[name, 0]["totals"]
    assert (totals["unallocated_gpu_hours"], totals["stranded_gpu_hours"]) == (unallocated, stranded)
    assert (totals["unallocated_usd"], totals["stranded_usd"]) == (PRICE * unallocated, PRICE * stranded)


def test_four_quarters_of_a_gpu_cost_as_much_as_a_whole(attributed: Hours) -> None:
    totals = attributed["four-quarters-of-a-gpu", 0]["totals"]
    assert (totals["capacity_gpu_hours"], totals["allocated_gpu_hours"], totals["node_cost_usd"]) == (1, 1, PRICE)


def test_cost_of_a_rack_includes_its_failed_tray(attributed: Hours) -> None:
    assert attributed["rack-with-failed-tray", 0]["totals"]["node_cost_usd"] == 72 * PRICE


def test_note_gives_domain_and_reason(attributed: Hours) -> None:
    assert [note for note in attributed["two-racks-half-used", 0]["notes"] if "NVLink" in note] == [
        f"32.000 free GPU-hours of NVLink domain '{CLUSTER_UUID}.{rack}' are stranded: fewer than 36 of its GPUs were "
        "free (nvlink_domains of the settings)"
        for rack in (1, 2)
    ]
    assert not any("NVLink" in note for note in attributed["rack-half-used", 0]["notes"])
