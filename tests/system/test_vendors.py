"""AMD's GPUs, Gaudi and Intel's GPUs through a real Prometheus: amounts computed by hand, and queries that are sent."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost_devstack.fleet.scenarios import vendors
from tests.prometheus_clients import SentQuery, recording_client
from tests.system.fleet_truth import PRICE, Hours, ask, settings
from tests.system.remote_write import running_scenarios

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
SCENARIOS = {scenario.name: scenario for scenario in vendors.scenarios()}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A Prometheus with all of these clusters."""
    with running_scenarios(SCENARIOS.values(), BASE) as address:
        yield address


@pytest.fixture(scope="module")
def attributed(url: str, tmp_path_factory: pytest.TempPathFactory) -> Hours:
    return ask(list(SCENARIOS.values()), url, BASE, tmp_path_factory.mktemp("hours"))


def line(attributed: Hours, cluster: str, pod: str) -> Any:
    (row,) = (row for row in attributed[cluster, 0]["lines"] if row["pod"] == pod)
    return row


@pytest.mark.parametrize(
    ("cluster", "pod", "allocated", "effective", "waste", "unmeasured"),
    [
        ("amd-whole", "one", "10", "7.5", "2.5", "0"),
        ("amd-whole", "two", "20", "10", "10", "0"),
        ("amd-cpx-single", "always", "1.25", "0.625", "0.625", "0"),
        ("amd-cpx-mixed", "always", "1.25", "0.625", "0.625", "0"),
        ("amd-qpx-single", "several", "10", "2.5", "7.5", "0"),
        ("amd-whole-and-partitions", "whole", "10", "7.5", "2.5", "0"),
        ("amd-whole-and-partitions", "parts", "2.5", "0.5", "2", "0"),
        ("amd-without-exporter", "one", "10", None, None, "10"),
        ("gaudi", "four", "40", "20", "20", "0"),
        ("gaudi-without-exporter", "four", "40", None, None, "40"),
        ("intel-gpu", "all", "20", "10", "10", "0"),
        ("intel-gpu", "one-of-two", "10", None, None, "10"),
    ],
)
def test_dollars_are_those_computed_by_hand(
    attributed: Hours, cluster: str, pod: str, allocated: str, effective: str | None, waste: str | None, unmeasured: str
) -> None:
    """A GPU-hour costs $10, and all pods run all hour."""
    assert PRICE == 10
    row = line(attributed, cluster, pod)
    amounts = [row[f"{part}_usd"] for part in ("allocated", "effective", "waste", "unmeasured")]
    assert amounts == [None if text is None else Decimal(text) for text in (allocated, effective, waste, unmeasured)]


@pytest.mark.parametrize(
    ("cluster", "pod", "model", "resource", "source"),
    [
        ("amd-whole", "one", "AMD-Instinct-MI300X-OAM", "amd.com/gpu", "pod"),
        ("amd-cpx-mixed", "always", "AMD-Instinct-MI300X-OAM", "amd.com/cpx_nps4", "pod"),
        ("amd-cpx-labeled", "p", "AMD-Instinct-MI300X", "amd.com/gpu", "none"),
        ("gaudi-without-exporter", "one", "Intel-Gaudi", "habana.ai/gaudi", "none"),
        ("mixed-vendors", "nvidia", "NVIDIA-A10G", "nvidia.com/gpu", "pod"),
        ("mixed-vendors", "neuron", "NeuronCore", "aws.amazon.com/neuroncore", "pod"),
        ("mixed-vendors-exporter-missing", "neuron", "NeuronCore", "aws.amazon.com/neuroncore", "pod"),
    ],
)
def test_lines_name_model_resource_and_source(
    attributed: Hours, cluster: str, pod: str, model: str, resource: str, source: str
) -> None:
    row = line(attributed, cluster, pod)
    assert (row["gpu_model"], row["resource"], row["utilization_source"]) == (model, resource, source)


@pytest.mark.parametrize("name", ["amd-idle", "mixed-vendors"])
def test_other_vendors_take_no_further_query(url: str, name: str) -> None:
    """Their signals are part of the query for devices, in all clusters."""
    document = parse_settings(settings([SCENARIOS[name]], url, BASE))
    sent: list[SentQuery] = []
    metrics_reader(document.clusters[0], document, make_client=recording_client(sent)).observe([BASE])
    queries = [form["query"] for _, form in sent]
    assert sum("gpu_gfx_activity" in query and "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in query for query in queries) == 1
    assert len([query for query in queries if "habanalabs_utilization" in query]) == 1
