"""The proof of concept's published table through a real Prometheus, and the correct table.

The article requests 3, 2 and 2 of a GPU's 7 slices at $12 a GPU-hour and divides DCGM's 0-1 ratio by 100, so it shows
a hundredth of the use (docs/decisions/0003).
"""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from gpucost.core.amounts import SCALE
from gpucost.core.hour_record import HourRecord
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from tests.system.timeline import HOUR, Timeline

MEAN_SIGNAL = 0.04521998214285714
ALLOCATED = {"bu-a": 36 / 7, "bu-b": 24 / 7, "bu-c": 24 / 7}
PUBLISHED_EFFECTIVE = {"bu-a": 0.002325599081632653, "bu-b": 0.0015503993877551022, "bu-c": 0.0015503993877551022}
PUBLISHED_WASTE = {"bu-a": 5.14053154377551, "bu-b": 3.427021029183673, "bu-c": 3.427021029183673}
# By hand: 36/7 × 0.04521998214285714 and 24/7 × 0.04521998214285714.
RIGHT_EFFECTIVE = {"bu-a": 0.2325599081632653, "bu-b": 0.1550399387755102, "bu-c": 0.1550399387755102}


@pytest.fixture(params=["whole cluster", "requests and signal only"])
def table(request: pytest.FixtureRequest, prometheus: Callable[[str], str]) -> Callable[[int], HourRecord]:
    timeline = Timeline(step=30)
    for namespace, slices in {"bu-a": 3, "bu-b": 2, "bu-c": 2}.items():
        for i in range(slices):
            timeline.pod(f"{namespace}-{i}", namespace=namespace)
    for i in range(7):
        # Spread around the mean, as slices are: the proxy is the mean of them all.
        spread = MEAN_SIGNAL + (i - 3) * 0.01
        timeline.device(spread, GPU_I_ID=str(i), GPU_I_PROFILE="1g.5gb")
    if request.param == "whole cluster":
        timeline.up()
        timeline.node(capacity={"nvidia_com_gpu": 7})
    else:
        timeline.families = {
            name: rows
            for name, rows in timeline.families.items()
            if name in {"kube_pod_container_resource_requests", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}
        }
    url = prometheus(timeline.text())

    def run(scale: int) -> HourRecord:
        settings = parse_settings(
            f"""
            clusters: [{{name: poc, prometheus: {{url: "{url}"}}, slices_per_gpu: 7}}]
            pricing: {{source: constant, gpu_hourly_usd: 12, split: gpu-bears-all}}
            utilization: {{signal: DCGM_FI_PROF_GR_ENGINE_ACTIVE, scale: {scale}, sources: [cluster]}}
            """
        )
        reader = metrics_reader(settings.clusters[0], settings)
        (record,) = attribute_hours(reader, settings.clusters[0], settings, [HOUR], now=datetime.now(UTC))
        return record

    return run


def test_published_table_is_reproduced(table: Callable[[int], HourRecord]) -> None:
    units = table(100).by_business_unit()
    assert {name: costs.allocated_usd / SCALE for name, costs in units.items()} == pytest.approx(ALLOCATED, rel=1e-9)
    effective = {name: costs.effective_usd / SCALE for name, costs in units.items()}
    assert effective == pytest.approx(PUBLISHED_EFFECTIVE, rel=1e-9)
    assert {name: costs.waste_usd / SCALE for name, costs in units.items()} == pytest.approx(PUBLISHED_WASTE, rel=1e-9)


def test_product_gives_the_correct_table(table: Callable[[int], HourRecord]) -> None:
    units = table(1).by_business_unit()
    assert {name: costs.allocated_usd / SCALE for name, costs in units.items()} == pytest.approx(ALLOCATED, rel=1e-9)
    assert {name: costs.effective_usd / SCALE for name, costs in units.items()} == pytest.approx(
        RIGHT_EFFECTIVE, rel=1e-9
    )
