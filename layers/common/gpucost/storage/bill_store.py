"""Billed hours in the ledger's table; fulfils `bill_ports.BillStore`.

A UTC day is one document, compressed, in pieces that are written in one transaction with the record of what changed.
Each piece carries the hash of the whole: a reader that catches pieces of two versions reads again.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR, floor_day
from gpucost.core.pricing.bill import Bill
from gpucost.storage.bill_documents import day_document, read_day
from gpucost.storage.bill_ports import BillChange
from gpucost.storage.compressed_documents import pack, unpack
from gpucost.storage.table import FORMAT, Item, Table, check_format, integer, key, text

CHANGES = "BILL#changes"
MONTHS = "BILL#months"
MAX_READS = 5
"""How often a day is read before it is given up that its pieces fit together."""
MAX_CHUNKS = 12
"""3.6 MB compressed, of the 4 MB that a transaction takes: thousands of instances, whatever they cost."""
_DAY = timedelta(days=1)


class BillStore:
    """The bill by day, its unsettled changes, and which months are closed.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
        clock: the time now, noted on changes.
    """

    def __init__(self, client: Any, table: str, *, clock: Callable[[], datetime]) -> None:
        self._table = Table(client, table)
        self._clock = clock

    def bills(self, start: datetime, end: datetime) -> dict[datetime, Bill]:
        """The bill of the hours in `[start, end)` that have one; one query per month."""
        found: dict[datetime, Bill] = {}
        for first, last in _by_month(floor_day(start), end):
            for day, (_, bills) in self._days(first, last).items():
                for number, bill in bills.items():
                    at = day + number * HOUR
                    if start <= at < end:
                        found[at] = bill
        return dict(sorted(found.items()))

    def bill(self, hour: datetime) -> Bill | None:
        """One hour's bill; None until it arrives."""
        return self.bills(hour, hour + HOUR).get(hour)

    def store(self, day: datetime, bills: Mapping[datetime, Bill]) -> list[datetime]:
        """Make these the bills of a UTC day, in place of all that it had, and record which hours changed.

        Raises:
            ConflictError: somebody else stored the day at the same time; nothing changed.
            SourceError: the table failed; storing again is safe. Or the day does not fit a transaction.
        """
        old_pieces, old = self._days(day, day).get(day, ((), {}))
        document = day_document({(hour - day) // HOUR: bill for hour, bill in bills.items()})
        new = read_day(document)
        changed = sorted(hour for hour in old.keys() | new.keys() if old.get(hour) != new.get(hour))
        if not changed:
            return []
        pieces = pack(document)
        if len(pieces) > MAX_CHUNKS:
            raise SourceError(f"the bill of {day:%Y-%m-%d} is too large: {len(pieces)} pieces of 300 KB")
        was = text(old_pieces[0], "h") if old_pieces else ""
        version = sha256(b"".join(pieces)).hexdigest()[:16]
        first, *others = [_piece(day, number, len(pieces), version, piece) for number, piece in enumerate(pieces)]
        is_unchanged = "h = :was" if was else "attribute_not_exists(pk)"
        self._table.transact(
            puts=[
                (first, is_unchanged, {":was": {"S": was}} if was else None),
                *((piece, "", None) for piece in others),
                (self._change(day, f"{was}-{version}", changed), "", None),
            ],
            deletes=[(key(*_key(day, number)), "") for number in range(len(pieces), len(old_pieces))],
        )
        return [day + hour * HOUR for hour in changed]

    def changes(self) -> list[BillChange]:
        """Changes that nobody has settled, oldest day first."""
        found = []
        for item in self._table.query(CHANGES):
            check_format(item)
            day = datetime.fromisoformat(text(item, "sk")[:10]).replace(tzinfo=UTC)
            hours = tuple(day + int(number["N"]) * HOUR for number in item["c"]["L"])
            found.append(BillChange(text(item, "sk"), hours, datetime.fromtimestamp(integer(item, "p"), UTC)))
        return found

    def settle(self, change: BillChange) -> None:
        """The hours of a change have been seen to; twice is as once."""
        self._table.delete_all([key(CHANGES, change.id)])

    def months(self) -> dict[datetime, bool]:
        """The months that were read, by their first moment, and whether their bill is closed."""
        found = {}
        for item in self._table.query(MONTHS):
            check_format(item)
            found[datetime.fromisoformat(f"{text(item, 'sk')}-01").replace(tzinfo=UTC)] = item["f"]["BOOL"]
        return found

    def mark(self, month: datetime, *, is_closed: bool) -> None:
        """A month was read as a whole; when it closes, all its hours are to be rated again, the unbilled ones too."""
        if is_closed and not self.months().get(month):
            days = [day for day in (month + at * _DAY for at in range(31)) if day.month == month.month]
            # Before the mark: killed in between, the month is read and closed once more.
            self._table.put_all([self._change(day, "closed", range(24)) for day in days])
        item: Item = {**key(MONTHS, f"{month:%Y-%m}"), "v": {"N": str(FORMAT)}, "f": {"BOOL": is_closed}}
        self._table.put_all([item])

    def _days(self, first: datetime, last: datetime) -> dict[datetime, tuple[Sequence[Item], dict[int, Bill]]]:
        """The days of one month from the first to the last, each with its items and its bills by hour."""
        for _ in range(MAX_READS):
            items: dict[datetime, list[Item]] = {}
            for item in self._table.query(
                f"BILL#{first:%Y-%m}", "sk BETWEEN :first AND :last", first=f"{first:%d}", last=f"{last:%d}~"
            ):
                check_format(item)
                items.setdefault(first.replace(day=int(text(item, "sk")[:2])), []).append(item)
            if all(_fit(pieces) for pieces in items.values()):
                return {day: (pieces, unpack(pieces, read_day)) for day, pieces in items.items()}
        raise SourceError(f"the bill of {first:%Y-%m} changed each time it was read")

    def _change(self, day: datetime, version: str, hours: Sequence[int]) -> Item:
        return {
            **key(CHANGES, f"{day:%Y-%m-%d}#{version}"),
            "v": {"N": str(FORMAT)},
            "c": {"L": [{"N": str(hour)} for hour in hours]},
            "p": {"N": str(int(self._clock().timestamp()))},
        }


def _key(day: datetime, number: int) -> tuple[str, str]:
    return f"BILL#{day:%Y-%m}", f"{day:%d}#{number:02d}"


def _piece(day: datetime, number: int, count: int, version: str, data: bytes) -> Item:
    return {
        **key(*_key(day, number)),
        "v": {"N": str(FORMAT)},
        "h": {"S": version},
        "n": {"N": str(count)},
        "b": {"B": data},
    }


def _fit(pieces: Sequence[Item]) -> bool:
    """Whether they are all pieces of one version."""
    return len({text(piece, "h") for piece in pieces}) == 1 and len(pieces) == integer(pieces[0], "n")


def _by_month(first: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """The days from the first up to `end`, month by month: first and last day of each."""
    found = []
    while first < end:
        following = (first.replace(day=1) + timedelta(days=32)).replace(day=1)
        found.append((first, floor_day(min(following, end) - timedelta(microseconds=1))))
        first = following
    return found
