"""Serves EC2 prices, the Price List and Athena over HTTP from tables, because moto lacks them.

Each answers in the service's own wire format, so that the product's clients need nothing but an endpoint.
"""

import base64
import json
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import duckdb
import sqlglot

Tables = dict[str, Any]
"""`spot`: rows of [instance type, zone, product, time, amount]; `zones`: names to ids; `shapes`: instance type to
{gpus, vcpus, mib}; `offers`: rows of {instance_type, region, amount, since, …}; `bill`: file names to Parquet, base64."""


class AwsPrices:
    """AWS's prices at the moment."""

    def __init__(self) -> None:
        self.tables: Tables = {}
        self._rows: dict[str, list[list[str | None]]] = {}

    def answer(self, service: str, target: str, body: str) -> tuple[int, str, str]:
        """Status, content type and body."""
        if service == "ec2":
            form = dict(parse_qsl(body))
            return 200, "text/xml", _xml(form["Action"], self._ec2(form))
        request = json.loads(body)
        operations: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "GetProducts": self._products,
            "StartQueryExecution": self._start_query,
            "GetQueryExecution": self._query,
            "GetQueryResults": self._results,
        }
        return 200, "application/x-amz-json-1.1", json.dumps(operations[target.rpartition(".")[2]](request))

    def _ec2(self, form: Mapping[str, str]) -> dict[str, Any]:
        filters: dict[str, list[str]] = {}
        for name, value in form.items():
            match name.split("."):
                case ["Filter", number, "Value", _]:
                    filters.setdefault(form[f"Filter.{number}.Name"], []).append(value)
        match form["Action"]:
            case "DescribeSpotPriceHistory":
                return {"spotPriceHistorySet": self._spot(filters, datetime.fromisoformat(form["StartTime"]))}
            case "DescribeAvailabilityZones":
                zones = self.tables.get("zones", {}).items()
                return {"availabilityZoneInfo": [{"zoneName": name, "zoneId": id_} for name, id_ in zones]}
            case "DescribeInstanceTypes":
                shapes = self.tables.get("shapes", {}).items()
                return {
                    "instanceTypeSet": [
                        _shape(name, shape) for name, shape in shapes if name in filters["instance-type"]
                    ]
                }
            case other:
                raise NotImplementedError(other)

    def _spot(self, filters: Mapping[str, list[str]], since: datetime) -> list[dict[str, str]]:
        """Price changes since a time, newest first, and the last one before it for each pool."""
        rows = [
            row
            for row in self.tables.get("spot", [])
            if row[0] in filters["instance-type"] and row[2] in filters["product-description"]
        ]
        rows.sort(key=lambda row: str(row[3]))
        before = {tuple(row[:3]): row for row in rows if datetime.fromisoformat(row[3]) <= since}
        after = [row for row in rows if datetime.fromisoformat(row[3]) > since]
        names = ("instanceType", "availabilityZone", "productDescription", "timestamp", "spotPrice")
        return [dict(zip(names, row, strict=True)) for row in reversed([*before.values(), *after])]

    def _products(self, request: Mapping[str, Any]) -> dict[str, Any]:
        wanted = {rule["Field"]: rule["Value"].split(",") for rule in request["Filters"]}
        products = []
        for number, offer in enumerate(self.tables.get("offers", [])):
            attributes = {
                "instanceType": offer["instance_type"],
                "regionCode": offer["region"],
                "operatingSystem": offer.get("system", "Linux"),
                "tenancy": "Shared",
                "capacitystatus": "Used",
                "preInstalledSw": "NA",
                "licenseModel": "No License required",
                "marketoption": "OnDemand",
            }
            if all(attributes[name] in values for name, values in wanted.items()):
                rate = {"unit": "Hrs", "pricePerUnit": {"USD": offer["amount"]}}
                term = {"priceDimensions": {f"R{number}": rate}, "effectiveDate": offer["since"], "sku": f"S{number}"}
                product = {"attributes": attributes, "sku": f"S{number}"}
                products.append(json.dumps({"product": product, "terms": {"OnDemand": {f"T{number}": term}}}))
        return {"FormatVersion": "aws_v1", "PriceList": products}

    def _start_query(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run a statement on DuckDB over the export's Parquet files."""
        (sql,) = sqlglot.transpile(request["QueryString"], read="athena", write="duckdb")
        with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
            for name, content in self.tables.get("bill", {}).items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(content))
            database = request["QueryExecutionContext"]["Database"]
            connection.execute(f"CREATE SCHEMA {database}")
            connection.execute(
                f"CREATE VIEW {database}.bill AS SELECT * FROM read_parquet('{folder}/*/*.parquet', "
                "hive_partitioning = true, hive_types_autocast = false)"
            )
            connection.execute(f"USE {database}")
            answer = connection.execute(sql)
            header: list[str | None] = [column[0] for column in answer.description]
            rows = [[None if cell is None else str(cell) for cell in row] for row in answer.fetchall()]
        number = f"query-{len(self._rows)}"
        self._rows[number] = [header, *rows]
        return {"QueryExecutionId": number}

    @staticmethod
    def _query(request: Mapping[str, Any]) -> dict[str, Any]:
        status = {"State": "SUCCEEDED"}
        statistics = {"DataScannedInBytes": 1000}
        return {"QueryExecution": {**request, "Status": status, "Statistics": statistics}}

    def _results(self, request: Mapping[str, Any]) -> dict[str, Any]:
        cells = [
            {"Data": [{} if cell is None else {"VarCharValue": cell} for cell in row]}
            for row in self._rows[request["QueryExecutionId"]]
        ]
        return {"ResultSet": {"Rows": cells, "ResultSetMetadata": {"ColumnInfo": []}}}


def _shape(name: str, shape: Mapping[str, int]) -> dict[str, Any]:
    return {
        "instanceType": name,
        "vCpuInfo": {"defaultVCpus": shape["vcpus"]},
        "memoryInfo": {"sizeInMiB": shape["mib"]},
        "gpuInfo": {"gpus": [{"name": "x", "count": shape["gpus"]}]},
    }


def _xml(action: str, body: Mapping[str, Any]) -> str:
    return f'<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{_element(body)}</{action}Response>'


def _element(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"<{name}>{_element(part)}</{name}>" for name, part in value.items())
    if isinstance(value, list):
        return "".join(f"<item>{_element(part)}</item>" for part in value)
    return escape(str(value))
