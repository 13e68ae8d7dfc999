"""What all sections of the settings document are made of."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import ip_address
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

Value = TypeVar("Value", bound=Hashable)
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Positive = Annotated[Decimal, Field(gt=0, le=Decimal(10) ** 9)]
Percent = Annotated[Decimal, Field(ge=0, le=100)]


def matching_pattern(pattern: str, meaning: str) -> AfterValidator:
    """A text that fits a pattern from its first to its last character; the finding says what is meant instead."""
    compiled = re.compile(pattern, re.ASCII)

    def fits(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"must be {meaning}")
        return value

    return AfterValidator(fits)


Slug = Annotated[str, matching_pattern(r"[a-z0-9][a-z0-9-]{0,62}", "up to 63 lower-case letters, digits and -, as team-waste")]
SecretName = Annotated[
    str,
    matching_pattern(r"gpucost/[A-Za-z0-9/_+=.@-]{1,400}", "the name of a secret that begins with gpucost/, never what it holds"),
]
Address = Annotated[str, matching_pattern(r"https?://\S+", "an address that begins with http:// or https://")]
Region = Annotated[str, matching_pattern(r"[a-z]{2,4}(-[a-z]+)+-\d", "a region of AWS, as eu-central-1")]
QueryRole = Annotated[
    str,
    matching_pattern(
        r"arn:aws[a-z-]*:iam::\d{12}:role/gpucost-query-[\w+=,.@-]+",
        "the ARN of a role whose name begins with gpucost-query-, as arn:aws:iam::123456789012:role/gpucost-query-eu",
    ),
]

ExternalId = Annotated[
    str, matching_pattern(r"[\w+=,.@:/-]{2,1224}", "2 to 1224 letters, digits and _ + = , . @ : / - (an external id of IAM's)")
]
"""What the trust policy of a role in another account may ask for, so that nobody else has it assumed."""


class Section(BaseModel):
    """Base of all: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def duplicates(values: Iterable[Value]) -> list[Value]:
    """The values that there are several of, each once."""
    return [value for value, count in Counter(values).items() if count > 1]


def protects_secrets(address: str) -> bool:
    """Whether an address is one that a secret may be sent to: https, or on the machine itself."""
    parts = urlsplit(address)
    try:
        is_loopback = parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback
    except ValueError:
        is_loopback = False
    return parts.scheme == "https" or is_loopback


def day_as_midnight(value: object) -> object:
    """A day stands for its first moment, UTC."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return f"{value}T00:00:00Z" if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value) else value


def _reject_numbers(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError(  # noqa: TRY004 - pydantic makes a finding of this one
            f"{value} is neither a UTC time like 2026-11-19T10:00:00Z nor a day like 2026-11-19"
        )
    return day_as_midnight(value)


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("must have a zone, like 2026-11-19T10:00:00Z, or be a day like 2026-11-19")
    return value.astimezone(UTC)


UtcTime = Annotated[datetime, BeforeValidator(_reject_numbers), AfterValidator(_in_utc)]
"""A UTC instant or day."""
