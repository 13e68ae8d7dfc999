"""Items of the ledger's table: their keys, attributes and schema versions, and conditions of writes and queries."""

import hashlib
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from gpucost.core.errors import IntegrityError, SourceError

# Conditions: on the stored item for a write, and on the sort keys of a query.
#
# `storage/dynamodb_table.py` renders them as DynamoDB's expressions; `storage/sqlite_table.py` checks them itself.


class Missing(Struct, frozen=True):
    """No item has the key."""


class Present(Struct, frozen=True):
    """An item has the key."""


class Comparison(Struct, frozen=True):
    """An attribute of the stored item, compared with a string or an integer.

    As in DynamoDB, a missing attribute, or one of another type, differs from every value and is neither smaller nor
    larger.
    """

    attribute: str
    operator: Literal["=", "<>", "<", "<="]
    operand: str | int

    @property
    def attribute_value(self) -> dict[str, str]:
        """The operand as DynamoDB's API writes it."""
        return {"S": self.operand} if isinstance(self.operand, str) else {"N": str(self.operand)}


class AllOf(Struct, frozen=True):
    """Every comparison holds."""

    comparisons: tuple[Comparison, ...]


class MissingOr(Struct, frozen=True):
    """No item has the key, or the comparison holds."""

    comparison: Comparison


Condition = Missing | Present | Comparison | AllOf | MissingOr
MISSING = Missing()
PRESENT = Present()


def equals(attribute: str, operand: str | int) -> Comparison:
    """The attribute has this value."""
    return Comparison(attribute, "=", operand)


class Between(Struct, frozen=True):
    """Sort keys from `first` to `last`, both included."""

    first: str
    last: str


class StartsWith(Struct, frozen=True):
    """Sort keys with a prefix."""

    prefix: str


class Before(Struct, frozen=True):
    """Sort keys smaller than `sort_key`."""

    sort_key: str


SortKeys = Between | StartsWith | Before


# Items: their keys, attributes and schema versions.

SCHEMA_VERSION = 1
"""Schema version of an item, in its attribute `v`. Kinds of items that have a newer one define it themselves."""
_DECODING_ERRORS = (zlib.error, ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What decoding raises if bytes or texts are not what was written."""
Item = Mapping[str, Mapping[str, Any]]
ConditionalPut = tuple[Item, Condition | None]
"""An item to write, and the condition on the stored one."""
ConditionalDelete = tuple[Item, Condition | None]
"""A key, and the condition on the stored item."""


def key(pk: str, sk: str) -> dict[str, dict[str, str]]:
    """Build a primary key."""
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def key_of(item: Item) -> Item:
    """Return an item's primary key."""
    return {"pk": item["pk"], "sk": item["sk"]}


def text(item: Item, name: str) -> str:
    """Return a string attribute, "" if it is missing."""
    return str(item[name].get("S", "")) if name in item else ""


def integer(item: Item, name: str) -> int:
    """Return an integer attribute, 0 if it is missing."""
    return int(item[name].get("N", 0)) if name in item else 0


def check_schema_version(item: Item, newest: int = SCHEMA_VERSION) -> None:
    """Refuse an item whose schema version is newer than this code.

    Args:
        item: the item as it was read.
        newest: the newest schema version of its kind; earlier ones can be read.

    Raises:
        SourceError: a newer version wrote it.
    """
    if not 1 <= integer(item, "v") <= newest:
        raise SourceError(
            f"item {text(item, 'pk')!r} of the ledger has schema version {integer(item, 'v')}; "
            f"this release reads up to {newest}. Deploy the release that wrote it, or a newer one"
        )


def verify_integrity(item: Item) -> "_IntegrityCheck":
    """Turn errors of decoding an item, in a `with` block, into an error that names the item.

    Args:
        item: the item as it was read; the first one of several chunks.

    Raises:
        IntegrityError: the item is damaged.
    """
    return _IntegrityCheck(item)


class _IntegrityCheck:
    """See `verify_integrity`. A context manager from a generator takes a fifth of the time of reading a manifest."""

    def __init__(self, stored: Item) -> None:
        self._stored = stored

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, _DECODING_ERRORS):
            where = f"{text(self._stored, 'pk')} {text(self._stored, 'sk')}"
            raise IntegrityError(f"the ledger's item {where} is damaged: {type(error).__name__}: {error}") from error


def has_not_expired(item: Item, now: float) -> bool:
    """DynamoDB deletes expired items only within days, so they are skipped here."""
    return "expires_at" not in item or integer(item, "expires_at") > now


# Partition keys and sort keys of the ledger's items.

PartitionKind = Literal[
    "hours",
    "notes",
    "summaries",
    "nodes",
    "models",
    "usage",
    "restatements",
    "adjustments",
    "days",
    "rollups",
    "exports",
    "limits",
    "recommendations",
    "reviews",
    "memory",
    "waiting",
    "latency",
]
"""What a partition of a cluster holds: one or more items per hour or day."""


def partition_key(cluster: str, kind: PartitionKind) -> str:
    """The partition of a cluster's items of one kind."""
    return f"C#{cluster}#{kind}"


def lines_partition_key(cluster: str, at: datetime) -> str:
    """The partition of one hour's lines."""
    return f"C#{cluster}#lines#{format_hour(at)}"


def business_unit_hash(business_unit: str) -> str:
    """The hash that stands for a business unit in a key, because its name may be long and contain any character."""
    return hashlib.sha256(business_unit.encode()).hexdigest()[:24]


def parse_hour_and_run(item: Item) -> tuple[datetime, str]:
    """Return the hour and the run id in an item's sort key."""
    hour_text, run, *_ = text(item, "sk").split("#")
    return parse_hour(hour_text), run


def format_hour(at: datetime) -> str:
    """An hour as it is written in keys, which sort by time."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H")


def parse_hour(hour_text: str) -> datetime:
    """Read an hour from a key."""
    return datetime.fromisoformat(f"{hour_text}+00:00")


def to_epoch_seconds(time: datetime) -> int:
    """Seconds since the epoch, as TTL attributes require."""
    return int(time.timestamp())


def from_epoch_seconds(since_epoch: int) -> datetime:
    """The time of so many seconds since the epoch."""
    return datetime.fromtimestamp(since_epoch, UTC)
