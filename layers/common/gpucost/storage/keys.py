"""Partition keys and sort keys of the ledger's items."""

import hashlib
from datetime import UTC, datetime
from typing import Literal

from gpucost.storage.table import Item, text

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


def partition(cluster: str, kind: PartitionKind) -> str:
    """The partition of a cluster's items of one kind."""
    return f"C#{cluster}#{kind}"


def lines_partition(cluster: str, at: datetime) -> str:
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
