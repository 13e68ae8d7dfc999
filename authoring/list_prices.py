"""Writes the product's table of AWS list prices: `python -m authoring.list_prices --karpenter FOLDER | --aws`.

`--karpenter` reads the price tables in a checkout of Karpenter's AWS provider
(https://github.com/aws/karpenter-provider-aws, Apache-2.0), which its maintainers generate from the AWS Price List.
`--aws` asks the AWS Price List itself, for every region that it names, and needs `pricing:GetProducts`.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.pricing.prices import Price

TABLE = Path(__file__).parent.parent / "layers/common/gpucost/core/pricing/list_price_table.py"
KARPENTER_REPOSITORY = "https://github.com/aws/karpenter-provider-aws"
KARPENTER_FOLDER = "pkg/providers/pricing"
KARPENTER_FILES = tuple(f"zz_generated.pricing_{partition}.go" for partition in ("aws", "aws_us_gov", "aws_cn"))
AWS_SOURCE = "the AWS Price List (GetProducts, Linux, shared tenancy)"
INSTANCE_TYPE = re.compile(r"(?:p|g|gr|inf|trn)\d[a-z0-9-]*\.[a-z0-9-]+")
"""Types with NVIDIA or AMD GPUs, Inferentia or Trainium."""
_GENERATED = re.compile(r"^// generated at (\d{4}-\d{2}-\d{2})T", re.MULTILINE)
_REGION = re.compile(r'^\t"([a-z0-9-]+)": \{$(.*?)^\t\},$', re.MULTILINE | re.DOTALL)
_PRICE = re.compile(r'"([a-z0-9.-]+)": (\d+\.\d+)')


class RegionPrices(NamedTuple):
    """On-demand prices of a region by instance type, in the currency of its partition, on a day (YYYY-MM-DD)."""

    day: str
    prices: Mapping[str, Decimal]


def parse_karpenter_table(text: str) -> Iterator[tuple[str, RegionPrices]]:
    """Read one of Karpenter's generated Go files.

    Raises:
        ValueError: the file has another format.
    """
    generated = _GENERATED.search(text)
    regions = _REGION.findall(text)
    if generated is None or not regions:
        raise ValueError("the file is not a price table as Karpenter generates it")
    for region, body in regions:
        prices = {name: Decimal(usd) for name, usd in _PRICE.findall(body) if INSTANCE_TYPE.fullmatch(name)}
        yield region, RegionPrices(generated[1], prices)


def karpenter_tables(checkout: Path) -> tuple[str, dict[str, RegionPrices]]:
    """Read the tables of the checkout's HEAD; return their source, which names the commit, and the prices by region."""
    commit = _git(checkout, "rev-parse", "HEAD").strip()
    tables: dict[str, RegionPrices] = {}
    for name in KARPENTER_FILES:
        tables.update(parse_karpenter_table(_git(checkout, "show", f"HEAD:{KARPENTER_FOLDER}/{name}")))
    return f"{KARPENTER_REPOSITORY}/tree/{commit}/{KARPENTER_FOLDER}", tables


def aws_tables(regions: list[str]) -> tuple[str, dict[str, RegionPrices]]:
    """Ask the AWS Price List for the accelerated types of some regions."""
    from gpucost.runtime.aws import AwsClients
    from gpucost.sources.aws_prices import AwsPriceList

    now = datetime.now(UTC)
    price_list = AwsPriceList(AwsClients())
    types = [name for name in (*GPUS_OF_INSTANCE, *NEURON_OF_INSTANCE) if INSTANCE_TYPE.fullmatch(name)]
    tables = {
        region: RegionPrices(
            f"{now:%Y-%m-%d}", _amounts(price_list.fetch(region, types, ["linux"], tenancy="Shared", now=now))
        )
        for region in regions
    }
    return AWS_SOURCE, tables


def render_table(source: str, tables: Mapping[str, RegionPrices]) -> str:
    """Return the text of the table's module."""
    lines = [
        '"""AWS\'s public on-demand prices of accelerated types. Written by `python -m authoring.list_prices`."""',
        "",
        f'SOURCE = "{source}"  # noqa: E501',
        "DAYS: dict[str, str] = {",
        *(f'    "{region}": "{table.day}",' for region, table in sorted(tables.items()) if table.prices),
        "}",
        '"""The day of each region\'s prices."""',
        "HOURLY_PRICES: dict[str, dict[str, str]] = {",
    ]
    for region, table in sorted(tables.items()):
        if table.prices:
            lines += [
                f'    "{region}": {{',
                *(f'        "{name}": "{price.normalize():f}",' for name, price in sorted(table.prices.items())),
                "    },",
            ]
    lines += ["}", '"""Linux, shared tenancy, per node-hour, in USD (in China: CNY)."""', ""]
    return "\n".join(lines)


def _amounts(prices: list[Price]) -> dict[str, Decimal]:
    return {price.applies_to["instance_type"]: Decimal(str(price.amount)) for price in prices}


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--karpenter", type=Path, help="a checkout of Karpenter's AWS provider")
    parser.add_argument("--aws", nargs="+", metavar="REGION", help="regions to ask the AWS Price List for")
    options = parser.parse_args()
    if bool(options.karpenter) == bool(options.aws):
        parser.error("pass either --karpenter FOLDER or --aws REGION ...")
    source, tables = karpenter_tables(options.karpenter) if options.karpenter else aws_tables(options.aws)
    TABLE.write_text(render_table(source, tables))
    print(f"{sum(len(table.prices) for table in tables.values())} prices of {len(tables)} regions", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
