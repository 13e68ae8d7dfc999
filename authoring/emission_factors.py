"""Writes the product's table of grid emission factors: `python -m authoring.emission_factors CHECKOUT`.

CHECKOUT is a checkout of Cloud Carbon Footprint (Thoughtworks, Apache-2.0), whose maintainers collected the factors of
the grids of AWS's regions from public sources.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

TABLE = Path(__file__).parent.parent / "layers/common/gpucost/core/pricing/emission_factor_table.py"
REPOSITORY = "https://github.com/cloud-carbon-footprint/cloud-carbon-footprint"
REGIONS_FILE = "packages/aws/src/domain/AwsFootprintEstimationConstants.ts"
GRIDS_FILE = "packages/core/src/FootprintEstimationConstants.ts"
"""Factors of the grids of the United States (NERC regions), to which the regions refer by name."""
_GRID = re.compile(r"^  ([A-Z]+): (\d+\.\d+),$", re.MULTILINE)
_REGION = re.compile(
    r"^    \[AWS_REGIONS\.([A-Z0-9_]+)\]: (?:US_NERC_REGIONS_EMISSIONS_FACTORS\.([A-Z]+)|(\d+\.\d+)),", re.MULTILINE
)
_PUE = re.compile(r"PUE_AVG: (\d+\.\d+)")
_KG_PER_METRIC_TON = 1000


def parse_factors(regions: str, grids: str) -> tuple[Decimal, dict[str, Decimal]]:
    """Read the PUE, and kg CO2e per kWh by AWS region, from the text of the two files.

    Raises:
        ValueError: a file has another format.
    """
    of_grid = {name: Decimal(factor) for name, factor in _GRID.findall(grids)}
    pue = _PUE.search(regions)
    tons = {
        region.lower().replace("_", "-"): of_grid[grid] if grid else Decimal(factor)
        for region, grid, factor in _REGION.findall(regions)
        if region != "UNKNOWN"
    }
    if pue is None or not tons:
        raise ValueError("the files are not those of Cloud Carbon Footprint")
    return Decimal(pue[1]), {region: factor * _KG_PER_METRIC_TON for region, factor in tons.items()}


def render_table(commit: str, day: str, pue: Decimal, factors: Mapping[str, Decimal]) -> str:
    """Return the text of the table's module."""
    return "\n".join(
        [
            '"""Emission factors of AWS regions. Written by `python -m authoring.emission_factors`."""',
            "",
            "SOURCE = (",
            f'    "{REPOSITORY}/blob/"',
            f'    "{commit}/{REGIONS_FILE}"',
            ")",
            f'DAY = "{day}"',
            '"""The day of the source\'s commit."""',
            f'PUE = "{pue}"',
            '"""Power usage effectiveness of AWS\'s data centers."""',
            "KG_PER_KWH: dict[str, str] = {",
            *(f'    "{region}": "{factor.normalize():f}",' for region, factor in sorted(factors.items())),
            "}",
            '"""kg CO2e per kWh by region, location-based, without PUE."""',
            "",
        ]
    )


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout
    pue, factors = parse_factors(
        _git(checkout, "show", f"HEAD:{REGIONS_FILE}"), _git(checkout, "show", f"HEAD:{GRIDS_FILE}")
    )
    commit, day = _git(checkout, "show", "--no-patch", "--format=%H %cs", "HEAD").split()
    TABLE.write_text(render_table(commit, day, pue, factors))
    print(f"{len(factors)} regions", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
