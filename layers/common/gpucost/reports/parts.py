"""The services of reports, each made when it is first used."""

from functools import cached_property
from typing import TYPE_CHECKING

from gpucost.shared_parts import SharedParts

if TYPE_CHECKING:
    from gpucost.reports.limit_reports import LimitReports
    from gpucost.reports.pages import PriceBookListing
    from gpucost.reports.report_service import ReportService
    from gpucost.reports.scoped import AccessPolicy


class ReportParts(SharedParts):
    """The services of reports."""

    @cached_property
    def access_policy(self) -> "AccessPolicy":
        """For `functions/api`."""
        from gpucost.reports.scoped import AccessPolicy

        return AccessPolicy(self.settings_store)

    @cached_property
    def limit_reports(self) -> "LimitReports":
        """For `functions/api`."""
        from gpucost.reports.limit_reports import LimitReports

        return LimitReports(self.settings_store, self.ledger, self.limits_store, clock=self.clock)

    @cached_property
    def report_service(self) -> "ReportService":
        """For `functions/api`."""
        from gpucost.reports.report_service import ReportService

        return ReportService(
            self.settings_store, self.ledger, self.rollups, self.clock, self.ledger.versions.closed_months
        )

    @cached_property
    def price_book_listing(self) -> "PriceBookListing":
        """For `functions/api`."""
        from gpucost.reports.pages import PriceBookListing

        return PriceBookListing(self.price_book)
