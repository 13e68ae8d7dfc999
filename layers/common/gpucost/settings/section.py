"""What all sections of the settings document are made of."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Positive = Annotated[Decimal, Field(gt=0, le=Decimal(10) ** 9)]
Percent = Annotated[Decimal, Field(ge=0, le=100)]
Region = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")]
QueryRole = Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/gpucost-query-[\w+=,.@-]+$")]


class Section(BaseModel):
    """Base of all: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def as_instant(value: object) -> object:
    """A day stands for its first moment, UTC."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return f"{value}T00:00:00Z" if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value) else value


def _not_a_number(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError(  # noqa: TRY004 - pydantic makes a finding of this one
            f"{value} is neither a UTC time like 2026-11-19T10:00:00Z nor a day like 2026-11-19"
        )
    return as_instant(value)


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("must have a zone, like 2026-11-19T10:00:00Z, or be a day like 2026-11-19")
    return value.astimezone(UTC)


Moment = Annotated[datetime, BeforeValidator(_not_a_number), AfterValidator(_in_utc)]
"""A UTC instant or day."""
