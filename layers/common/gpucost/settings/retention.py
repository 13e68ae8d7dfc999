"""How long the ledger keeps its records: the section `retention` of the settings."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from gpucost.core.ledger import MIN_RETENTION, Retention
from gpucost.settings.section import MAX_SHOWN_CHARACTERS, Section

_DURATION = r"(\d{1,4}y)?(\d{1,4}w)?(\d{1,5}d)?"
_DAYS_PER_UNIT = {"d": 1, "w": 7, "y": 365}


def _days_of_duration(value: object) -> object:
    """Convert a Prometheus duration such as `400d` or `1y5w` to days. Leave other values as they are."""
    if not isinstance(value, str):
        return value
    if not re.fullmatch(_DURATION, value) or value == "":
        shown = value[:MAX_SHOWN_CHARACTERS]
        raise ValueError(f"{shown!r} is not a number of days or a duration such as 400d, 26w or 5y")
    return sum(int(count) * _DAYS_PER_UNIT[unit] for count, unit in re.findall(r"(\d+)([ywd])", value))


_Days = Annotated[int, Field(ge=MIN_RETENTION.days, le=3660)]
_Duration = Annotated[str, Field(pattern=f"^{_DURATION}$", min_length=1)]
RetentionDays = Annotated[_Days, BeforeValidator(_days_of_duration, json_schema_input_type=_Days | _Duration)]


class RetentionSettings(Section):
    """How long records are kept: days, or a duration such as `400d`. A change applies to records written after it."""

    pods: RetentionDays = 400
    """Pods, nodes, and the usage from which hours are rated again."""
    hourly: RetentionDays = 1830
    """Hourly sums by business unit and namespace."""
    daily: RetentionDays = 1830
    """Daily sums, and records of restatements."""

    @model_validator(mode="after")
    def _sums_outlive_their_parts(self) -> "RetentionSettings":
        if not self.pods <= self.hourly <= self.daily:
            raise ValueError(
                "pods must not be longer than hourly, nor hourly longer than daily, but they are "
                f"{self.pods}, {self.hourly} and {self.daily} days"
            )
        return self

    def periods(self) -> Retention:
        """The retention periods for the ledger."""
        return Retention(*(timedelta(days=days) for days in (self.pods, self.hourly, self.daily)))
