"""Documented responses of EC2 and the Price List, returned by real boto3 clients.

moto has real instance types and zones, but its spot history is a single price of 2006, and it has no Price List.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

ZONES = {
    "us-east-1": {"us-east-1a": "use1-az6", "us-east-1b": "use1-az1"},
    "eu-west-1": {"eu-west-1a": "euw1-az3"},
    "cn-north-1": {"cn-north-1a": "cnn1-az1"},
    "us-gov-west-1": {"us-gov-west-1a": "usgw1-az1"},
}


@dataclass
class Point:
    """One change of a spot price."""

    instance_type: str
    zone: str
    at: datetime
    amount: str
    product: str = "Linux/UNIX"


@dataclass
class Offer:
    """One product of the Price List."""

    instance_type: str
    region: str
    amount: str
    since: str = "2026-11-01T00:00:00Z"
    system: str = "Linux"
    market: str = "OnDemand"
    currency: str = "USD"
    more: dict[str, str] = field(default_factory=dict)
    service: str = "AmazonEC2"


class Aws:
    """Simulated AWS, which records requests.

    Attributes:
        points: all changes of spot prices.
        offers: of the Price List.
        shapes: instance type → (field, its content) and vCPUs, MiB.
        calls: (region, operation) of each request, page by page.
        failing: operations or regions that are refused.
    """

    def __init__(self, *, page: int = 1000, zone_ids: bool = False, any_of: bool = True) -> None:
        self.points: list[Point] = []
        self.offers: list[Offer] = []
        self.shapes: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.requests: list[dict[str, Any]] = []
        self.failing: set[str] = set()
        self._page, self._zone_ids, self._any_of = page, zone_ids, any_of
        self._clients: dict[tuple[str, str], Any] = {}

    def client(self, service: str, region: str) -> Any:
        """A real boto3 client with simulated responses, which are validated against the service's model."""
        if (service, region) not in self._clients:
            client = boto3.client(  # type: ignore[call-overload]
                service, region_name=region, aws_access_key_id="x", aws_secret_access_key="x"
            )
            pending: list[dict[str, Any]] = []

            def remember(params: dict[str, Any], **_: Any) -> None:
                pending.append(dict(params))

            def answer(model: Any, **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
                params = pending.pop()
                self.calls.append((region, model.name))
                self.requests.append(params)
                if {model.name, region} & self.failing:
                    raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": ""}}, model.name)
                parsed = self._operations()[model.name](region, params)
                report = ParamValidator().validate(parsed, model.output_shape)
                assert not report.has_errors(), report.generate_report()
                return AWSResponse("", 200, HTTPHeaders(), None), parsed

            client.meta.events.register("before-parameter-build.*.*", remember)
            client.meta.events.register("before-call.*.*", answer)
            self._clients[service, region] = client
        return self._clients[service, region]

    def _operations(self) -> dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]]:
        return {
            "DescribeSpotPriceHistory": self._spot,
            "DescribeAvailabilityZones": self._zones,
            "DescribeInstanceTypes": self._types,
            "GetProducts": self._products,
        }

    def _spot(self, region: str, params: dict[str, Any]) -> dict[str, Any]:
        """Changes since the start, newest first, and the last earlier change of each pool."""
        filters = {matcher["Name"]: matcher["Values"] for matcher in params["Filters"]}
        since = params["StartTime"]
        changes: list[Point] = []
        before: dict[tuple[str, str, str], Point] = {}
        for point in sorted(self.points, key=lambda point: point.at):
            if (
                point.zone in ZONES[region]
                and point.instance_type in filters["instance-type"]
                and point.product in filters["product-description"]
            ):
                if point.at <= since:
                    before[point.instance_type, point.zone, point.product] = point
                else:
                    changes.append(point)
        rows = [
            {
                "InstanceType": point.instance_type,
                "AvailabilityZone": point.zone,
                "ProductDescription": point.product,
                "SpotPrice": point.amount,
                "Timestamp": point.at,
                **({"AvailabilityZoneId": ZONES[region][point.zone]} if self._zone_ids else {}),
            }
            for point in sorted([*changes, *before.values()], key=lambda point: point.at, reverse=True)
        ]
        return self._paged(params, "SpotPriceHistory", rows, end={"NextToken": ""})

    def _zones(self, region: str, params: dict[str, Any]) -> dict[str, Any]:
        assert params == {"AllAvailabilityZones": True}
        return {"AvailabilityZones": [{"ZoneName": name, "ZoneId": id_} for name, id_ in ZONES[region].items()]}

    def _types(self, region: str, params: dict[str, Any]) -> dict[str, Any]:
        (types,) = [matcher["Values"] for matcher in params["Filters"]]
        rows = [{"InstanceType": name, **body} for name, body in self.shapes.items() if name in types]
        return self._paged(params, "InstanceTypes", rows)

    def _products(self, region: str, params: dict[str, Any]) -> dict[str, Any]:
        rows = []
        for offer in self.offers:
            attributes = {
                "instanceType": offer.instance_type,
                "regionCode": offer.region,
                "operatingSystem": offer.system,
                "tenancy": "Shared",
                "capacitystatus": "Used",
                "preInstalledSw": "NA",
                "licenseModel": "No License required",
                "marketoption": offer.market,
                **offer.more,
            }
            if offer.service != "AmazonEC2":
                attributes = {"instanceType": offer.instance_type, "regionCode": offer.region, **offer.more}
            if offer.service == params["ServiceCode"] and all(
                self._matches(attributes, matcher) for matcher in params["Filters"]
            ):
                rows.append(json.dumps(_product(offer, attributes)))
        return {"FormatVersion": "aws_v1", **self._paged(params, "PriceList", rows)}

    def _matches(self, attributes: dict[str, str], filter_: dict[str, str]) -> bool:
        values = filter_["Value"].split(",") if filter_["Type"] == "ANY_OF" and self._any_of else [filter_["Value"]]
        return attributes.get(filter_["Field"]) in values

    def _paged(
        self, params: dict[str, Any], name: str, rows: list[Any], end: dict[str, str] | None = None
    ) -> dict[str, Any]:
        start = int(params.get("NextToken") or 0)
        more = {"NextToken": str(start + self._page)} if start + self._page < len(rows) else (end or {})
        return {name: rows[start : start + self._page], **more}


def _product(offer: Offer, attributes: dict[str, str]) -> dict[str, Any]:
    """A product in the format aws_v1 of GetProducts."""
    sku = f"SKU{abs(hash((offer.instance_type, offer.region))) % 10**6}"
    dimension = {
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "appliesTo": [],
        "rateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
        "pricePerUnit": {offer.currency: f"{offer.amount}"},
        "description": f"${offer.amount} per On Demand {offer.system} {offer.instance_type} Instance Hour",
    }
    term = {
        "priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": dimension},
        "sku": sku,
        "effectiveDate": offer.since,
        "offerTermCode": "JRTCKXETXF",
        "termAttributes": {},
    }
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": sku},
        "serviceCode": offer.service,
        "version": "20261118",
        "publicationDate": "2026-11-18T00:00:00Z",
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
    }


def gpus(count: int, vcpus: int, mib: int, kind: str = "GpuInfo") -> dict[str, Any]:
    """GPUs, vCPUs and memory in the format of DescribeInstanceTypes."""
    names = {"GpuInfo": "Gpus", "NeuronInfo": "NeuronDevices", "InferenceAcceleratorInfo": "Accelerators"}
    return {
        kind: {names[kind]: [{"Count": count, "Name": "x"}]},
        "VCpuInfo": {"DefaultVCpus": vcpus},
        "MemoryInfo": {"SizeInMiB": mib},
    }


def every(hours: float, instance_type: str, zone: str, start: datetime, amounts: str) -> list[Point]:
    """Price changes at regular intervals."""
    step = timedelta(hours=hours)
    return [Point(instance_type, zone, start + step * index, amount) for index, amount in enumerate(amounts.split())]
