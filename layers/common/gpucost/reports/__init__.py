"""The api function's job: what hours cost, by period and by whatever they are grouped by; exact, and honest about gaps.

An hour that is missing or incomplete adds nothing to any figure and is seen in the coverage instead; a period without
a single hour of figures has no row, for a row of zeros would say that nothing was spent.
"""

from gpucost.reports.parameters import QueryParameters
from gpucost.reports.records import CostReport, HourRow, PeriodCoverage
from gpucost.reports.service import ReportService

__all__ = ["QueryParameters", "CostReport", "HourRow", "PeriodCoverage", "ReportService"]
