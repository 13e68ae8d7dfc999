"""The services of OpenCost's API, each made when it is first used."""

from functools import cached_property
from typing import TYPE_CHECKING

from gpucost.shared_parts import SharedParts

if TYPE_CHECKING:
    from gpucost.features.opencost.allocation_service import AllocationService, AssetService


class OpenCostParts(SharedParts):
    """The services of OpenCost's API."""

    @cached_property
    def allocation_service(self) -> "AllocationService":
        """For `functions/api`."""
        from gpucost.features.opencost.allocation_service import AllocationService

        return AllocationService(self.settings_store, self.ledger, self.rollups, clock=self.clock)

    @cached_property
    def asset_service(self) -> "AssetService":
        """For `functions/api`."""
        from gpucost.features.opencost.allocation_service import AssetService

        return AssetService(self.settings_store, self.ledger)
