"""`gpucost attribute` with automatic prices: fetched from AWS where it answers, else the built-in list prices."""

import json
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import format_timestamp
from gpucost.core.pricing.list_price_table import DAYS
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost_cli.node_price_fetcher import NodePriceFetcher
from tests import forked_gpucost
from tests.sources.aws_prices import Aws, Offer, Point
from tests.system.timeline import HOUR, Timeline


@pytest.fixture
def url(prometheus: Callable[[str], str]) -> str:
    """An on-demand and a spot node with an A10G each, whose pods hold the GPU for the whole hour."""
    timeline = Timeline(step=30)
    timeline.up()
    for name, capacity_type in (("on-demand", "on-demand"), ("spot", "spot")):
        timeline.node(
            name,
            capacity={"nvidia_com_gpu": 1},
            labels={
                "node_kubernetes_io_instance_type": "g5.xlarge",
                "topology_kubernetes_io_zone": "us-east-1a",
                "topology_k8s_aws_zone_id": "use1-az6",
                "karpenter_sh_capacity_type": capacity_type,
            },
        )
        timeline.pod(f"pod-{name}", node=name)
    return prometheus(timeline.text())


def attributed(url: str, aws: Aws, warnings: list[str], *, times: int = 1) -> HourRecord:
    """The hour's record of the last of several batches with the same hour, which share a fetcher."""
    settings = parse_settings(f'clusters: [{{name: c, prometheus: {{url: "{url}"}}}}]')
    now = datetime.now(UTC)
    fetcher = NodePriceFetcher(settings.pricing, aws.client, HOUR, now, warn=warnings.append)
    for _ in range(times):
        reader = metrics_reader(settings.clusters[0], settings)
        (record,) = attribute_hours(reader, settings.clusters[0], settings, [HOUR], now=now, fetch_prices=fetcher)
    return record


def prices(record: HourRecord) -> dict[str, tuple[str, Decimal | None]]:
    return {line.node: (line.price_source, line.gpu_hourly_usd) for line in record.lines}


@pytest.fixture
def aws() -> Aws:
    aws = Aws(zone_ids=True)
    aws.offers.append(Offer("g5.xlarge", "us-east-1", "1.0060000000", since="2024-01-01T00:00:00Z"))
    aws.points.append(Point("g5.xlarge", "us-east-1a", HOUR - timedelta(hours=3), "0.30"))
    aws.points.append(Point("g5.xlarge", "us-east-1a", HOUR + timedelta(minutes=30), "0.40"))
    return aws


def test_nodes_have_the_prices_that_aws_answers(url: str, aws: Aws) -> None:
    warnings: list[str] = []
    record = attributed(url, aws, warnings)
    # Half an hour at 0.30, half at 0.40.
    assert prices(record) == {"on-demand": ("on-demand", Decimal("1.006")), "spot": ("spot", Decimal("0.35"))}
    assert (record.status, warnings) == ("complete", [])


def test_refused_prices_are_reported_once_and_list_prices_are_used(url: str, aws: Aws) -> None:
    warnings: list[str] = []
    aws.failing |= {"GetProducts", "DescribeSpotPriceHistory"}
    record = attributed(url, aws, warnings, times=2)
    assert prices(record) == {name: ("list-price", Decimal("1.006")) for name in ("on-demand", "spot")}
    assert record.status == "provisional"
    assert [warning.partition(":")[0] for warning in warnings] == [
        "on-demand prices of us-east-1 are not used",
        "spot prices of us-east-1 are not used",
    ]
    assert any("list price of" in note for note in record.notes)


def test_prices_are_fetched_once_for_all_batches(url: str, aws: Aws) -> None:
    record = attributed(url, aws, [], times=3)
    assert sorted(aws.calls) == [("us-east-1", "DescribeSpotPriceHistory"), ("us-east-1", "GetProducts")]
    assert prices(record) == {"on-demand": ("on-demand", Decimal("1.006")), "spot": ("spot", Decimal("0.35"))}


def test_every_node_is_paid_by_the_price_that_it_names(url: str, aws: Aws) -> None:
    record = attributed(url, aws, [])
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert Fraction(record.totals.capacity.node_cost_usd, 10**12) == Fraction("1.006") + Fraction("0.35")


def attribute_command(url: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder that is also its HOME, without the variables of AWS."""
    (folder / "settings.yaml").write_text(f'clusters: [{{name: c, prometheus: {{url: "{url}"}}}}]\n')
    command = ["attribute", "--settings", "settings.yaml", "--hour", format_timestamp(HOUR), "--format", "json"]
    variables = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    variables |= {"HOME": str(folder), "AWS_EC2_METADATA_DISABLED": "true", **environment}
    return forked_gpucost.run(*command, env=variables, cwd=folder)


def test_command_without_credentials_uses_list_prices_and_names_their_day(url: str, tmp_path: Path) -> None:
    done = attribute_command(url, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (hour,) = json.loads(done.stdout)["hours"]
    assert hour["status"] == "provisional", "the spot node has no spot price"
    assert {line["price_source"] for line in hour["lines"]} == {"list-price"}
    assert f"g5.xlarge is priced at the list price of {DAYS['us-east-1']}, us-east-1" in " ".join(hour["notes"])


def test_unusable_credentials_are_reported_and_list_prices_are_used(url: str, tmp_path: Path) -> None:
    done = attribute_command(url, tmp_path, AWS_PROFILE="missing")
    assert done.returncode == 0
    assert done.stderr == "gpucost: AWS is not used: The config profile (missing) could not be found\n"
    (hour,) = json.loads(done.stdout)["hours"]
    assert {line["price_source"] for line in hour["lines"]} == {"list-price"}
