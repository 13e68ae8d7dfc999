"""What the bill's service needs from the outside, as Protocols (see `ports`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpucost.core.pricing.bill_lines import BillExtract
from gpucost.settings.bill import CurSettings


class BillReader(Protocol):
    """The bill where AWS delivers it."""

    def read(self, start: datetime, end: datetime) -> BillExtract:
        """The lines that begin in `[start, end)`.

        Raises:
            SourceError: it could not be read, or not as it must be (hourly, with resource ids).
        """
        ...


class BillReaders(Protocol):
    """A reader for each export."""

    def __call__(self, cur: CurSettings) -> BillReader:
        """The reader of one export."""
        ...


@dataclass(frozen=True, slots=True)
class BillChange:
    """Hours of a day whose bill changed and that are to be rated again."""

    id: str
    hours: tuple[datetime, ...]
    at: datetime
    """When it was stored."""


class NodePools(Protocol):
    """Which node pool an instance belongs to: the ledger knows, the bill does not."""

    def __call__(self, start: datetime, end: datetime) -> Mapping[str, str]:
        """Node pool by instance id, of the nodes seen in `[start, end)`."""
        ...


def no_node_pools(start: datetime, end: datetime) -> Mapping[str, str]:
    """Where nothing tells the node pools."""
    return {}
