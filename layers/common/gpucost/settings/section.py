"""Base class and common types of all sections of the settings document."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
)
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from gpucost.core.decimals import is_bounded

Value = TypeVar("Value", bound=Hashable)
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def _check_digits(number: Decimal) -> Decimal:
    if not is_bounded(number):
        raise ValueError("has too many digits. Write at most 12 of them after the decimal point, and no exponent")
    return number


BOUNDED_DIGITS = AfterValidator(_check_digits)
"""Validates every decimal number of documents: a short text may be a number of a billion digits."""
Positive = Annotated[Decimal, Field(gt=0, le=Decimal(10) ** 9), BOUNDED_DIGITS]
Percent = Annotated[Decimal, Field(ge=0, le=100), BOUNDED_DIGITS]


class _WholeTextPattern(Struct, frozen=True):
    """Validates that a whole text matches a pattern, which the JSON Schema contains, too."""

    pattern: re.Pattern[str]
    allowed: str

    def validate(self, text: str) -> str:
        if not self.pattern.fullmatch(text):
            raise ValueError(f"must be {self.allowed}")
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.validate, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {
            **handler(schema),
            "pattern": f"^({self.pattern.pattern})$",
            "patternErrorMessage": f"must be {self.allowed}",
        }


def matching_pattern(pattern: str, allowed: str) -> _WholeTextPattern:
    """Validates that a whole text matches a pattern; the error message describes what is allowed."""
    return _WholeTextPattern(re.compile(pattern, re.ASCII), allowed)


Slug = Annotated[
    str, matching_pattern(r"[a-z0-9][a-z0-9-]{0,62}", "up to 63 lower-case letters, digits and -, such as team-waste")
]
SecretName = Annotated[
    str,
    matching_pattern(
        r"gpucost/[A-Za-z0-9/_+=.@-]{1,400}", "the name of a secret that begins with gpucost/, never its value"
    ),
]
Address = Annotated[str, matching_pattern(r"https?://\S+", "an address that begins with http:// or https://")]
Region = Annotated[str, matching_pattern(r"[a-z]{2,4}(-[a-z]+)+-\d", "an AWS region, such as eu-central-1")]
QueryRole = Annotated[
    str,
    matching_pattern(
        r"arn:aws[a-z-]*:iam::\d{12}:role/gpucost-query-[\w+=,.@-]+",
        "the ARN of a role whose name begins with gpucost-query-, like arn:aws:iam::123456789012:role/gpucost-query-eu",
    ),
]

ExternalId = Annotated[
    str,
    matching_pattern(r"[\w+=,.@:/-]{2,1224}", "2 to 1224 letters, digits and _ + = , . @ : / - (an IAM external id)"),
]
"""The external id that the trust policy of a role in another account may require (confused deputy problem)."""


MAX_SHOWN_CHARACTERS = 60
"""Characters of a key or value that are shown in an error message."""


class Section(BaseModel):
    """Base class of all sections. Unknown keys are errors."""

    # Validators are built at first use: most sections are validated only as a part of the document. Sections that are
    # defaults are made by `model_construct`, because validating them would build their validators in every cold start.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    misplaced_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that do not exist but are often expected here, with a sentence about where the setting is."""
    tagged_lists: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {}
    """Lists whose entries are one of several models: the key that selects the model, and its values."""


def duplicates(values: Iterable[Value]) -> list[Value]:
    """The values that occur more than once."""
    return [value for value, count in Counter(values).items() if count > 1]


def protects_secrets(address: str) -> bool:
    """Whether secrets may be sent to an address: over https, or to this machine."""
    parts = urlsplit(address)
    try:
        is_loopback = parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback
    except ValueError:
        is_loopback = False
    return parts.scheme == "https" or is_loopback


DayOrTime = date | datetime
"""What documents may contain in place of a time."""


def day_as_midnight(value: object) -> object:
    """Convert a day to its midnight, UTC. Leave other values as they are."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return f"{value}T00:00:00Z" if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value) else value


def _reject_numbers(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError(  # noqa: TRY004 - pydantic reports only ValueError
            f"{value} is neither a UTC time like 2026-11-19T10:00:00Z nor a day like 2026-11-19"
        )
    return day_as_midnight(value)


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("must have a time zone, like 2026-11-19T10:00:00Z, or be a day like 2026-11-19")
    return value.astimezone(UTC)


UtcTime = Annotated[
    datetime, BeforeValidator(_reject_numbers, json_schema_input_type=DayOrTime), AfterValidator(_in_utc)
]
"""A UTC time or day."""
