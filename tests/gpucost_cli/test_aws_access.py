"""What commands ask AWS if there are credentials: EC2 instances of nodes without labels, and prices for `serve`."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from botocore.stub import Stubber
from moto import mock_aws

from gpucost.core.hours import format_timestamp
from gpucost.core.metering.nodes import ReportedNode
from gpucost.core.pricing.prices import region_of
from gpucost.pipeline.attribute import AttributedHour, compute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.aws_access import AwsAccess
from gpucost_cli.local_service import LocalService
from tests.sources.aws_prices import Aws, Offer
from tests.system.timeline import HOUR, Timeline

pytestmark = pytest.mark.tools  # EC2 of moto takes seconds to import
REGION = "us-west-2"


class Access(AwsAccess):
    """Access with given clients, as if there were credentials."""

    def __init__(self, clients: Callable[[str, str], Any], warnings: list[str]) -> None:
        super().__init__(warn=warnings.append)
        self.clients = clients  # type: ignore[assignment]


class Ec2:
    """EC2 of moto, with an on-demand and a spot instance."""

    def __init__(self) -> None:
        self.client = boto3.client("ec2", region_name=REGION)
        (image, *_) = self.client.describe_images(Owners=["amazon"])["Images"]
        spot = {"MarketType": "spot"}
        self.ids: list[str] = []
        for options in ({}, {"InstanceMarketOptions": spot}):
            run = self.client.run_instances(
                ImageId=image["ImageId"],
                InstanceType="p4d.24xlarge",
                MinCount=1,
                MaxCount=1,
                Placement={"AvailabilityZone": "us-west-2b"},
                **options,
            )
            self.ids.append(run["Instances"][0]["InstanceId"])
        self.regions: list[str] = []

    def clients(self, service: str, region: str) -> Any:
        assert service == "ec2"
        self.regions.append(region)
        return self.client if region == REGION else boto3.client("ec2", region_name=region)


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with mock_aws():
        yield Ec2()


def provider_id(instance_id: str, zone: str = "us-west-2b") -> str:
    return f"aws:///{zone}/{instance_id}"


def test_instances_are_requested_once_with_type_zone_and_capacity_type(ec2: Ec2) -> None:
    warnings: list[str] = []
    access = Access(ec2.clients, warnings)
    on_demand, spot = map(provider_id, ec2.ids)
    gone = provider_id("i-0123456789abcdef0")
    hyperpod = f"aws:///usw2-az1/sagemaker/cluster/hyperpod-abc-{ec2.ids[0]}"
    for _ in range(2):
        assert access.instances([on_demand, spot, gone, hyperpod, "kind://docker/a/b", ""]) == {
            on_demand: ReportedNode("ec2", "p4d.24xlarge", zone="us-west-2b", capacity_type="on-demand"),
            spot: ReportedNode("ec2", "p4d.24xlarge", zone="us-west-2b", capacity_type="spot"),
        }
    assert (ec2.regions, warnings) == ([REGION], [])


@pytest.mark.parametrize(
    ("more", "capacity_type"),
    [
        ({"CapacityReservationId": "cr-1"}, "reserved"),
        ({"CapacityReservationId": "cr-1", "InstanceLifecycle": "capacity-block"}, "capacity-block"),
        ({"InstanceLifecycle": "scheduled"}, ""),
    ],
)
def test_lifecycle_and_reservation_say_the_capacity_type(more: dict[str, str], capacity_type: str) -> None:
    """moto has no reservations. Stubber checks the answer against EC2's model."""
    client = boto3.client("ec2", region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x")
    instance = {"InstanceId": "i-1", "InstanceType": "p5.48xlarge", **more}
    with Stubber(client) as stubber:
        stubber.add_response("describe_instances", {"Reservations": [{"Instances": [instance]}]})
        access = Access(lambda *_: client, [])
        (reported,) = access.instances([provider_id("i-1")]).values()
    assert reported.capacity_type == capacity_type


def test_refusal_is_reported_once() -> None:
    aws, warnings = Aws(), list[str]()
    aws.failing.add("DescribeInstances")
    access = Access(aws.client, warnings)
    for _ in range(2):
        assert access.instances([provider_id("i-0123456789abcdef0", "us-east-1a")]) == {}
    assert warnings == [
        "instances of us-east-1 are not looked up: ec2:DescribeInstances failed: UnauthorizedOperation; the role needs "
        "the permission for ec2:DescribeInstances"
    ]


@pytest.fixture
def unlabeled(prometheus: Callable[[str], str]) -> Callable[[list[str]], str]:
    """A Prometheus with nodes of some instance ids, of which only provider id and capacity are exported."""

    def start(ids: list[str]) -> str:
        timeline = Timeline(step=30)
        timeline.up()
        for number in range(len(ids)):
            name = f"n{number}"
            timeline.node(name, capacity={"nvidia_com_gpu": 8})
            timeline.pod(f"pod-{number}", node=name, namespace="bu-a")
        text = timeline.text()
        for number, instance_id in enumerate(ids):
            text = text.replace(f"aws:///us-west-2a/i-n{number}", provider_id(instance_id))
        return prometheus(text)

    return start


def document(url: str) -> str:
    return f'clusters: [{{name: c, prometheus: {{url: "{url}"}}}}]\n'


def attributed(url: str, access: AwsAccess | None) -> AttributedHour:
    settings = parse_settings(document(url))
    reader = metrics_reader(settings.clusters[0], settings, instances=access.instances if access else None)
    (hour,) = compute_hours(reader, settings.clusters[0], settings, [HOUR], now=HOUR + timedelta(hours=2))
    return hour


def test_nodes_without_labels_have_the_types_of_their_instances(
    ec2: Ec2, unlabeled: Callable[[list[str]], str]
) -> None:
    gone = "i-0123456789abcdef0"
    url = unlabeled([*ec2.ids, gone])
    record = attributed(url, Access(ec2.clients, [])).record
    facts = {
        node.node: (node.instance_type, node.instance_type_source, node.capacity_type, node.zone)
        for node in record.nodes
    }
    assert facts == {
        "n0": ("p4d.24xlarge", "ec2", "on-demand", "us-west-2b"),
        "n1": ("p4d.24xlarge", "ec2", "spot", "us-west-2b"),
        "n2": ("", "", "", "us-west-2b"),
    }
    assert "instance type p4d.24xlarge of n0, n1 is from EC2's API" in record.notes
    assert any("the instance type of n2 is unknown" in note for note in record.notes)
    assert {node.instance_type for node in attributed(url, None).record.nodes} == {""}


def test_serve_fetches_prices_of_the_nodes_in_use_and_rates_the_newest_hour_again(
    tmp_path: Path, prometheus: Callable[[str], str]
) -> None:
    """Nodes in us-west-2, of which the built-in list prices have none."""
    timeline = Timeline(step=30)
    timeline.up()
    labels = {"node_kubernetes_io_instance_type": "g5.xlarge", "topology_kubernetes_io_zone": "us-west-2a"}
    timeline.node(capacity={"nvidia_com_gpu": 1}, labels=labels)
    timeline.pod("pod", namespace="bu-a")
    url = prometheus(timeline.text())
    aws, warnings = Aws(zone_ids=True), list[str]()
    aws.offers.append(Offer("g5.xlarge", REGION, "1.0060000000", since="2024-01-01T00:00:00Z"))
    assert region_of("us-west-2a") == REGION
    now = HOUR + timedelta(hours=1, minutes=10)
    with SqliteTable(tmp_path) as table:
        service = LocalService(
            table, document(url), author="me", clock=lambda: now, secret_value=str, aws=Access(aws.client, warnings)
        )
        assert len(list(service.attribute_newest(2))) == 2
        with service.serving(0) as api:
            for hour in (HOUR - timedelta(hours=1), HOUR):
                period = {"start": format_timestamp(hour), "end": format_timestamp(hour + timedelta(hours=1))}
                (row,) = requests.get(f"{api}/v1/business-units", params=period, timeout=30).json()["rows"]
                assert row["allocated_usd"] == 1.006, hour
    assert warnings == []


def test_time_so_far_has_prices_of_aws(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    timeline = Timeline(step=30)
    timeline.up(0, 10)
    labels = {"node_kubernetes_io_instance_type": "g5.xlarge", "topology_kubernetes_io_zone": "us-west-2a"}
    timeline.node(start=0, end=10, capacity={"nvidia_com_gpu": 1}, labels=labels)
    timeline.pod("pod", 0, 10, namespace="bu-a")
    url = prometheus(timeline.text())
    aws = Aws(zone_ids=True)
    aws.offers.append(Offer("g5.xlarge", REGION, "1.2000000000", since="2024-01-01T00:00:00Z"))
    now = HOUR + timedelta(minutes=10)
    with SqliteTable(tmp_path) as table:
        service = LocalService(
            table, document(url), author="me", clock=lambda: now, secret_value=str, aws=Access(aws.client, [])
        )
        with service.serving(0) as api:
            (cluster,) = requests.get(f"{api}/serve/so-far", timeout=30).json()["clusters"]
    (unit,) = cluster["business_units"]
    assert unit["business_unit"] == "bu-a"
    assert float(unit["allocated_usd"]) == pytest.approx(0.2, abs=0.01)
