"""What the bill's service needs from the outside, as Protocols (see `ports`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpucost.core.pricing.bill_lines import BillExtract
from gpucost.settings.bill import CurSettings


@dataclass(frozen=True, slots=True)
class BillChange:
    """Hours of a day whose bill changed and that are to be rated again."""

    id: str
    hours: tuple[datetime, ...]
    at: datetime
    """When it was stored."""


def no_node_pools(start: datetime, end: datetime) -> Mapping[str, str]:
    """Where nothing tells the node pools."""
    return {}
