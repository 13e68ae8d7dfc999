"""How long the ledger keeps what: the section `retention` of the settings."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field, model_validator

from gpucost.core.ledger import MIN_RETENTION, Retention
from gpucost.settings.section import Section

RetentionDays = Annotated[int, Field(ge=MIN_RETENTION.days, le=3660)]


class RetentionSettings(Section):
    """How long records are kept, in days from when they are written; what is there already keeps its end."""

    pods: RetentionDays = 400
    """Pods, nodes, and the usage that hours are rated again from."""
    hourly: RetentionDays = 1830
    """An hour's sums by business unit and namespace."""
    daily: RetentionDays = 1830
    """Sums of days, and what was restated."""

    @model_validator(mode="after")
    def _sums_outlive_what_they_sum(self) -> "RetentionSettings":
        if not self.pods <= self.hourly <= self.daily:
            raise ValueError("lines_days must not be more than hours_days, nor hours_days more than days_days")
        return self

    def periods(self) -> Retention:
        """The same, as the ledger takes it."""
        return Retention(*(timedelta(days=days) for days in (self.pods, self.hourly, self.daily)))
