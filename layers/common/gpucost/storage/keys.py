"""Partition and sort keys of the ledger's items, and the texts that stand in them."""

import hashlib
from datetime import UTC, datetime
from typing import Literal

from gpucost.storage.table import Item, text

Kind = Literal[
    "hours",
    "notes",
    "summaries",
    "nodes",
    "usage",
    "restatements",
    "beside",
    "days",
    "rollups",
    "exports",
    "limits",
    "recommendations",
    "reviews",
    "memory",
    "waiting",
]
"""What a partition of a cluster holds, one or more items per hour or day."""


def partition(cluster: str, kind: Kind) -> str:
    """The partition of a cluster's items of one kind."""
    return f"C#{cluster}#{kind}"


def lines(cluster: str, at: datetime) -> str:
    """The partition of one hour's lines."""
    return f"C#{cluster}#lines#{hour(at)}"


def unit(business_unit: str) -> str:
    """A unit in a key: its name may be long and hold anything."""
    return hashlib.sha256(business_unit.encode()).hexdigest()[:24]


def parts(item: Item) -> tuple[datetime, str]:
    """Hour and run of a sort key."""
    at, run, *_ = text(item, "sk").split("#")
    return read_hour(at), run


def hour(at: datetime) -> str:
    """An hour in a key, sorted as it should be."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H")


def read_hour(written: str) -> datetime:
    """Back from `hour`."""
    return datetime.fromisoformat(f"{written}+00:00").replace(tzinfo=UTC)


def seconds(moment: datetime) -> int:
    """Since the epoch, as TTL attributes want it."""
    return int(moment.timestamp())


def read_instant(since_epoch: int) -> datetime:
    """Back from `seconds`."""
    return datetime.fromtimestamp(since_epoch, UTC)
