"""Emissions: the kg CO2e of a kWh that GPUs draw, by the AWS region of their node.

They are location-based (GHG Protocol, Scope 2 Guidance): of the electricity grid at the region, whatever contracts for
renewable energy AWS has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

SOURCE = (
    "https://github.com/cloud-carbon-footprint/cloud-carbon-footprint/blob/"
    "b7a049c7d25c0022919ab9010199dd9e77aa4577/packages/aws/src/domain/AwsFootprintEstimationConstants.ts"
)
"""Cloud Carbon Footprint (Thoughtworks, Apache-2.0), as of 2024-03-25. Its sources: EPA's eGRID2020 by NERC region
(United States), the European Environment Agency (most of Europe), Carbon Footprint's factors of 2022-03 (others)."""
YEAR = "2020 to 2021"
"""The years whose electricity the factors describe."""
DEFAULT_PUE = Decimal("1.135")
"""Power usage effectiveness of AWS's data centers, as in the same source."""
KG_PER_KWH: dict[str, str] = {
    "af-south-1": "0.9006",
    "ap-east-1": "0.71",
    "ap-northeast-1": "0.4658",
    "ap-northeast-2": "0.4156",
    "ap-northeast-3": "0.4658",
    "ap-south-1": "0.7082",
    "ap-southeast-1": "0.408",
    "ap-southeast-2": "0.76",
    "ap-southeast-3": "0.7177",
    "ca-central-1": "0.12",
    "cn-north-1": "0.5374",
    "cn-northwest-1": "0.5374",
    "eu-central-1": "0.311",
    "eu-north-1": "0.0088",
    "eu-south-1": "0.2134",
    "eu-west-1": "0.2786",
    "eu-west-2": "0.225",
    "eu-west-3": "0.0511",
    "me-central-1": "0.4041",
    "me-south-1": "0.5059",
    "sa-east-1": "0.0617",
    "us-east-1": "0.379069",
    "us-east-2": "0.410608",
    "us-gov-east-1": "0.379069",
    "us-gov-west-1": "0.322167",
    "us-west-1": "0.322167",
    "us-west-2": "0.322167",
}
"""Grid factors by region, without PUE."""


@dataclass(frozen=True)
class Emissions:
    """The emission factors of the settings, and those of the table for other regions.

    Args:
        pue: the energy of the data center ÷ that of its computers.
    """

    pue: Decimal = DEFAULT_PUE
    kg_per_kwh_by_region: Mapping[str, Decimal] = field(default_factory=dict)
    kg_per_kwh_by_cluster: Mapping[str, Decimal] = field(default_factory=dict)
    """Take precedence over those of regions."""

    def kg_per_kwh(self, cluster: str, region: str) -> Fraction | None:
        """Return the kg CO2e of a kWh that a GPU draws, PUE included; None if the region's factor is unknown."""
        factor = self.kg_per_kwh_by_cluster.get(cluster, self.kg_per_kwh_by_region.get(region))
        if factor is None and region in KG_PER_KWH:
            factor = Decimal(KG_PER_KWH[region])
        return None if factor is None else Fraction(factor * self.pue)
