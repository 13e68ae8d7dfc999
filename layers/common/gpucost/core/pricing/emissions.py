"""Emissions: the kg CO2e of a kWh that GPUs draw, by the AWS region of their node.

They are location-based (GHG Protocol, Scope 2 Guidance): of the electricity grid at the region, whatever contracts for
renewable energy AWS has. docs/explanation/energy.md has the sources.
"""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from msgspec import Struct, field

from gpucost.core.decimals import parse_decimal
from gpucost.core.pricing.emission_factor_table import KG_PER_KWH, PUE

DEFAULT_PUE = parse_decimal(PUE)


class Emissions(Struct, frozen=True):
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
            factor = parse_decimal(KG_PER_KWH[region])
        return None if factor is None else Fraction(factor * self.pue)
