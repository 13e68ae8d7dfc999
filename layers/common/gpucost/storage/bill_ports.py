"""What the bill's service needs from the outside, as Protocols (see `ports`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpucost.core.pricing.bill import Bill
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


class BillStore(Protocol):
    """Billed hours, kept where attribution reads them without Athena. Every read is consistent."""

    def bills(self, start: datetime, end: datetime) -> dict[datetime, Bill]:
        """The bill of the hours in `[start, end)` that have one."""
        ...

    def bill(self, hour: datetime) -> Bill | None:
        """One hour's bill; None until it arrives."""
        ...

    def store(self, day: datetime, bills: Mapping[datetime, Bill]) -> list[datetime]:
        """Make these the bills of a UTC day, in place of all that it had.

        Atomic, and together with the record of the change: `changes` tells of it until it is settled. The same bills
        again write nothing.

        Args:
            day: its first moment.
            bills: by hour; an hour without one has none.

        Returns:
            The hours whose bill is another one now, oldest first.

        Raises:
            ConflictError: somebody else stored the day at the same time; nothing changed.
        """
        ...

    def changes(self) -> list[BillChange]:
        """Changes that nobody has settled, oldest day first."""
        ...

    def settle(self, change: BillChange) -> None:
        """The hours of a change have been seen to."""
        ...

    def months(self) -> dict[datetime, bool]:
        """The months that were read, by their first moment, and whether their bill is closed."""
        ...

    def mark(self, month: datetime, *, is_closed: bool) -> None:
        """A month was read as a whole."""
        ...


class NodePools(Protocol):
    """Which node pool an instance belongs to: the ledger knows, the bill does not."""

    def __call__(self, start: datetime, end: datetime) -> Mapping[str, str]:
        """Node pool by instance id, of the nodes seen in `[start, end)`."""
        ...


def no_node_pools(start: datetime, end: datetime) -> Mapping[str, str]:
    """Where nothing tells the node pools."""
    return {}
