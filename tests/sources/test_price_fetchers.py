"""Price fetchers with documented responses of AWS, and with moto where its responses are realistic."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import boto3
import pytest
from moto import mock_aws

from gpucost.core.errors import SourceError
from gpucost.core.pricing.prices import InstanceShape, Price, region_of, region_of_zone_id
from gpucost.runtime.aws import AwsClients
from gpucost.sources.aws_prices import AwsPriceList, Ec2InstanceTypes, Ec2SpotHistory
from tests.sources.aws_prices import Aws, Offer, Point, every, gpus

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TOMORROWS_END = datetime(2026, 11, 20, tzinfo=UTC)


def spot(aws: Aws, types: list[str], since: datetime = NOON - 10 * HOUR, region: str = "us-east-1") -> list[Price]:
    return Ec2SpotHistory(aws.client).fetch(region, types, ["linux"], since=since, now=NOON)


def test_each_region_has_a_separate_client() -> None:
    clients, regions = AwsClients(), ["us-east-1", "eu-west-1"]
    assert [clients("ec2", region).meta.region_name for region in regions * 2] == regions * 2
    assert clients("ec2", "us-east-1") is clients("ec2", "us-east-1")


@pytest.mark.parametrize("zone_ids", [False, True])
def test_spot_price_is_valid_until_the_next_price(zone_ids: bool) -> None:
    aws = Aws(page=2, zone_ids=zone_ids)
    aws.points = every(4, "g5.xlarge", "us-east-1a", NOON - 13 * HOUR, "0.30 0.31 0.29 0.33")
    aws.points += [Point("g5.xlarge", "us-east-1b", NOON - 90 * HOUR, "0.20")]
    prices = spot(aws, ["g5.xlarge"])
    periods = {(price.applies_to["zone_id"], price.valid_from, price.valid_to, str(price.amount)) for price in prices}
    assert periods == {
        ("use1-az6", NOON - 13 * HOUR, NOON - 9 * HOUR, "0.30"),
        ("use1-az6", NOON - 9 * HOUR, NOON - 5 * HOUR, "0.31"),
        ("use1-az6", NOON - 5 * HOUR, NOON - HOUR, "0.29"),
        ("use1-az6", NOON - HOUR, TOMORROWS_END, "0.33"),
        ("use1-az1", NOON - 90 * HOUR, TOMORROWS_END, "0.20"),
    }
    assert {(price.source, price.unit, price.currency, price.fetched_at) for price in prices} == {
        ("spot", "node-hour", "USD", NOON)
    }
    assert all(
        price.applies_to["capacity_type"] == "spot" and price.applies_to["operating_system"] == "linux"
        for price in prices
    )
    history = [call for call in aws.calls if call[1] == "DescribeSpotPriceHistory"]
    assert len(history) == 3, "five points in pages of two: one chain"
    assert len(aws.calls) - len(history) == (0 if zone_ids else 1), "zones are requested once, if their ids are missing"


def test_all_types_of_a_region_are_read_and_others_left_out() -> None:
    aws = Aws()
    for kind in range(50):
        aws.points += every(3, f"g{kind}.xlarge", "us-east-1a", NOON - 9 * HOUR, "1 2 3")
    aws.points += [
        Point("g5.xlarge", "us-east-1a", NOON - HOUR, "9", "Windows"),
        Point("m5.large", "us-east-1a", NOON - HOUR, "9"),
    ]
    prices = spot(aws, [f"g{kind}.xlarge" for kind in range(50)])
    assert len(prices) == 150
    assert len(aws.calls) == 2


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-1", "1e308", "1e10", "1e-999999999", "cheap", "9" * 5000])
def test_implausible_price_is_left_out_and_others_are_kept(odd: str) -> None:
    aws = Aws()
    aws.points = every(4, "g5.xlarge", "us-east-1a", NOON - 9 * HOUR, f"0.30 {odd} 0.29")
    aws.points += every(4, "g5.xlarge", "us-east-1b", NOON - 9 * HOUR, "0.20 0.21")
    assert {price.applies_to["zone_id"] for price in spot(aws, ["g5.xlarge"])} == {"use1-az1"}
    aws.offers = [Offer("p5.48xlarge", "us-east-1", odd), Offer("g5.xlarge", "us-east-1", "1.006")]
    prices = listed(aws, ["p5.48xlarge", "g5.xlarge"])
    assert [(price.applies_to["instance_type"], str(price.amount)) for price in prices] == [("g5.xlarge", "1.006")]


def test_windows_and_vpc_products_are_read() -> None:
    aws = Aws()
    aws.points = [
        Point("g5.xlarge", "us-east-1a", NOON - 3 * HOUR, "0.3", "Linux/UNIX (Amazon VPC)"),
        Point("g5.xlarge", "us-east-1b", NOON - 3 * HOUR, "0.4", "Linux/UNIX (Amazon VPC)"),
        Point("g5.xlarge", "us-east-1b", NOON - 2 * HOUR, "0.5", "Linux/UNIX"),
        Point("g5.xlarge", "us-east-1b", NOON - 2 * HOUR, "0.7", "Windows"),
    ]
    prices = Ec2SpotHistory(aws.client).fetch(
        "us-east-1", ["g5.xlarge"], ["linux", "windows"], since=NOON - 9 * HOUR, now=NOON
    )
    amounts = {
        (price.applies_to["operating_system"], price.applies_to["zone_id"], str(price.amount)) for price in prices
    }
    assert amounts == {("linux", "use1-az6", "0.3"), ("linux", "use1-az1", "0.5"), ("windows", "use1-az1", "0.7")}


def test_refused_request_names_the_permission() -> None:
    aws = Aws()
    aws.failing = {"DescribeSpotPriceHistory", "GetProducts", "DescribeInstanceTypes"}
    with pytest.raises(SourceError, match="the role needs the permission for ec2:DescribeSpotPriceHistory"):
        spot(aws, ["g5.xlarge"])
    with pytest.raises(SourceError, match="pricing:GetProducts"):
        listed(aws, ["g5.xlarge"])
    with pytest.raises(SourceError, match="ec2:DescribeInstanceTypes"):
        Ec2InstanceTypes(aws.client).fetch("us-east-1", ["g5.xlarge"])


def test_unexpected_format_is_an_error() -> None:
    aws = Aws()
    aws.offers = [Offer("g5.xlarge", "us-east-1", "1", since="soon")]
    with pytest.raises(SourceError, match="unexpected format"):
        listed(aws, ["g5.xlarge"])


def listed(aws: Aws, types: list[str], region: str = "us-east-1", systems: Any = ("linux",)) -> list[Price]:
    return AwsPriceList(aws.client).fetch(region, types, systems, tenancy="Shared", now=NOON)


def test_list_prices_are_exact_and_of_the_right_offer() -> None:
    aws = Aws()
    aws.offers = [
        Offer("p5.48xlarge", "us-east-1", "55.0400000000"),
        Offer("p5.48xlarge", "us-east-1", "0.0000000000", market="CapacityBlock"),
        Offer("p5.48xlarge", "us-east-1", "31.4640000000", market="CapacityBlock"),
        Offer("p5.48xlarge", "us-east-1", "0.0000000000"),
        Offer("p5.48xlarge", "us-east-1", "66.0400000000", more={"tenancy": "Dedicated"}),
        Offer("p5.48xlarge", "us-east-1", "0.0000000000", more={"capacitystatus": "AllocatedCapacityReservation"}),
        Offer("p5.48xlarge", "us-east-1", "77.0400000000", more={"preInstalledSw": "SQL Ent"}),
        Offer("p5.48xlarge", "us-east-1", "64.0000000000", system="Windows"),
        Offer("p5.48xlarge", "eu-west-1", "60.0000000000"),
        Offer("g5.xlarge", "us-east-1", "1.0060000000", since="2026-06-01T00:00:00Z"),
    ]
    prices = listed(aws, ["p5.48xlarge", "g5.xlarge", "nope"])
    assert {(price.applies_to["instance_type"], str(price.amount), price.valid_from) for price in prices} == {
        ("p5.48xlarge", "55.0400000000", datetime(2026, 11, 1, tzinfo=UTC)),
        ("g5.xlarge", "1.0060000000", datetime(2026, 6, 1, tzinfo=UTC)),
    }
    assert prices[0].applies_to.keys() == {"instance_type", "region", "operating_system"}
    assert all((price.currency, price.valid_to, price.unit) == ("USD", None, "node-hour") for price in prices)
    assert aws.calls == [("us-east-1", "GetProducts")]
    (windows,) = listed(aws, ["p5.48xlarge"], systems=("windows",))
    assert (windows.amount, windows.applies_to["operating_system"]) == (Decimal(64), "windows")


@pytest.mark.tools
def test_types_are_queried_in_batches_or_singly() -> None:
    types = [f"g{kind}.xlarge" for kind in range(50)]
    for any_of, calls in ((True, 2), (False, 2 + 50)):
        aws = Aws(any_of=any_of)
        aws.offers = [Offer(name, "us-east-1", "1") for name in types]
        assert len(listed(aws, types)) == 50
        assert len(aws.calls) == calls


def test_all_pages_of_the_price_list_are_read() -> None:
    aws = Aws(page=3)
    aws.offers = [Offer(f"g{kind}.xlarge", "us-east-1", "1") for kind in range(10)]
    assert len(listed(aws, [f"g{kind}.xlarge" for kind in range(10)])) == 10
    assert len(aws.calls) == 4


def test_two_prices_of_an_instance_type_are_an_error() -> None:
    aws = Aws()
    aws.offers = [Offer("g5.xlarge", "us-east-1", "1"), Offer("g5.xlarge", "us-east-1", "2")]
    with pytest.raises(SourceError, match=r"two prices of g5.xlarge \(linux, us-east-1\): 1 and 2 USD"):
        listed(aws, ["g5.xlarge"])
    aws.offers[1].amount = "1.0"
    assert len(listed(aws, ["g5.xlarge"])) == 1


def test_china_has_another_endpoint_and_currency() -> None:
    aws = Aws()
    aws.offers = [Offer("g5.xlarge", "cn-north-1", "8.5", currency="CNY")]
    (price,) = listed(aws, ["g5.xlarge"], region="cn-north-1")
    assert (price.amount, price.currency) == (Decimal("8.5"), "CNY")
    assert aws.calls == [("cn-northwest-1", "GetProducts")]


@pytest.mark.parametrize(
    ("region", "endpoint"), [("us-west-2", "us-east-1"), ("eu-central-1", "eu-central-1"), ("ap-south-1", "ap-south-1")]
)
def test_price_list_is_queried_in_the_region_if_it_has_an_endpoint(region: str, endpoint: str) -> None:
    aws = Aws()
    aws.offers = [Offer("g5.xlarge", region, "1.25")]
    assert [price.currency for price in listed(aws, ["g5.xlarge"], region=region)] == ["USD"]
    assert aws.calls == [(endpoint, "GetProducts")]


def test_govcloud_without_price_list_suggests_manual_prices() -> None:
    aws = Aws()
    with pytest.raises(SourceError, match=r"no endpoint in the partition aws-us-gov of us-gov-west-1; set prices"):
        listed(aws, ["g5.xlarge"], region="us-gov-west-1")
    assert aws.calls == []


@pytest.mark.parametrize(
    ("region", "zone", "currency"), [("cn-north-1", "cn-north-1a", "CNY"), ("us-gov-west-1", "us-gov-west-1a", "USD")]
)
def test_spot_prices_are_in_the_partitions_currency(region: str, zone: str, currency: str) -> None:
    aws = Aws(zone_ids=True)
    aws.points = [Point("g5.xlarge", zone, NOON - HOUR, "3")]
    assert [price.currency for price in spot(aws, ["g5.xlarge"], region=region)] == [currency]


def test_unknown_region_is_an_error() -> None:
    with pytest.raises(SourceError, match="UnknownRegionError"):
        listed(Aws(), ["g5.xlarge"], region="moon-1")


def test_future_price_is_left_out() -> None:
    aws = Aws()
    aws.offers = [Offer("g5.xlarge", "us-east-1", "1", since="2026-12-01T00:00:00Z")]
    assert listed(aws, ["g5.xlarge"]) == []


def test_shapes_equal_ec2s_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """moto has EC2's own catalog. The expected numbers are from AWS's pages about instance types."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    types = [
        "p5.48xlarge",
        "p4d.24xlarge",
        "g5.xlarge",
        "inf1.xlarge",
        "trn1.2xlarge",
        "m5.large",
        "nope.large",
        "g6f.large",
        "gr6f.4xlarge",
    ]
    with mock_aws():
        catalogue = Ec2InstanceTypes(lambda service, region: boto3.client(service, region_name=region))  # type: ignore[call-overload]
        shapes = {shape.instance_type: shape for shape in catalogue.fetch("us-east-1", types)}
    assert shapes == {
        "p5.48xlarge": InstanceShape("p5.48xlarge", 8, 192, 2048 * 1024),
        "p4d.24xlarge": InstanceShape("p4d.24xlarge", 8, 96, 1152 * 1024),
        "g5.xlarge": InstanceShape("g5.xlarge", 1, 4, 16 * 1024),
        "inf1.xlarge": InstanceShape("inf1.xlarge", 1, 4, 8 * 1024),
        "trn1.2xlarge": InstanceShape("trn1.2xlarge", 1, 8, 32 * 1024),
        "m5.large": InstanceShape("m5.large", 0, 2, 8 * 1024),
        "g6f.large": InstanceShape("g6f.large", Fraction(1, 8), 2, 8 * 1024),
        "gr6f.4xlarge": InstanceShape("gr6f.4xlarge", Fraction(1, 2), 16, 128 * 1024),
    }


def test_older_accelerators_count_once() -> None:
    aws = Aws(page=1)
    both = gpus(4, 24, 49152, "NeuronInfo") | gpus(4, 24, 49152, "InferenceAcceleratorInfo")
    aws.shapes = {"inf1.6xlarge": both, "eia.large": gpus(2, 4, 8192, "InferenceAcceleratorInfo")}
    shapes = Ec2InstanceTypes(aws.client).fetch("us-east-1", ["inf1.6xlarge", "eia.large"])
    assert shapes == [InstanceShape("eia.large", 2, 4, 8192), InstanceShape("inf1.6xlarge", 4, 24, 49152)]


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-east-1a", "us-east-1"),
        ("ap-northeast-2c", "ap-northeast-2"),
        ("us-gov-west-1b", "us-gov-west-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1"),
        ("", ""),
        ("rack-7", ""),
        ("westeurope-1", ""),
    ],
)
def test_region_of_a_zone(zone: str, region: str) -> None:
    assert region_of(zone) == region


@pytest.mark.parametrize(
    ("zone_id", "region"),
    [
        ("use1-az4", "us-east-1"),
        ("apne2-az1", "ap-northeast-2"),
        ("apse1-az3", "ap-southeast-1"),
        ("aps1-az1", "ap-south-1"),
        ("euc1-az2", "eu-central-1"),
        ("cnnw1-az1", "cn-northwest-1"),
        ("cnn1-az1", "cn-north-1"),
        ("usgw1-az1", "us-gov-west-1"),
        ("usw2-lax1-az1", "us-west-2"),
        ("", ""),
        ("rack", ""),
    ],
)
def test_region_of_a_zone_id(zone_id: str, region: str) -> None:
    assert region_of_zone_id(zone_id) == region


def test_price_of_hyperpod_is_that_of_sagemakers_clusters() -> None:
    """The attributes are those of the AmazonSageMaker offer: studio and training plans have lookalikes."""
    aws = Aws()
    aws.offers = [Offer("g5.8xlarge", "us-east-1", "2.448")]
    for instance_type, component, usage_type, amount in (
        ("ml.g5.8xlarge-Cluster", "Cluster", "USE1-Cluster:ml.g5.8xlarge", "3.06"),
        ("ml.g5.8xlarge-Cluster", "ReservedCluster", "USE1-ReservedCluster:ml.g5.8xlarge", "0"),
        ("ml.g5.8xlarge-Studio", "Studio", "USE1-Studio:ml.g5.8xlarge", "3.2"),
        ("ml.p5.48xlarge-Cluster", "Cluster", "USE1-Cluster:ml.p5.48xlarge", "66.048"),
    ):
        more = {"component": component, "usagetype": usage_type, "servicecode": "AmazonSageMaker"}
        aws.offers.append(Offer(instance_type, "us-east-1", amount, more=more, service="AmazonSageMaker"))
    prices = listed(aws, ["g5.8xlarge", "ml.g5.8xlarge", "ml.p5.48xlarge"])
    assert {price.applies_to["instance_type"]: str(price.amount) for price in prices} == {
        "g5.8xlarge": "2.448",
        "ml.g5.8xlarge": "3.06",
        "ml.p5.48xlarge": "66.048",
    }
    assert [request["ServiceCode"] for request in aws.requests] == ["AmazonEC2", "AmazonSageMaker"]
