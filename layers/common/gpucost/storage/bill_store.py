"""Stores billed hours in the ledger's table, where attribution reads them without Athena.

A UTC day is one compressed document, in chunks that are written in one transaction with the record of what changed.
Each chunk carries the hash of the document: a reader that gets chunks of two versions reads again.

Instance ids hardly compress, and figures rarely change from hour to hour, so a day is little larger than an hour.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from msgspec import Struct

from gpucost.core.errors import SourceError
from gpucost.core.hour_record import ClusterCharge
from gpucost.core.hours import HOUR, floor_day
from gpucost.core.pricing.bill import Bill, BilledHour
from gpucost.storage.compressed_documents import CHUNK_BYTES, pack, unpack
from gpucost.storage.ports import Table
from gpucost.storage.table import (
    MISSING,
    SCHEMA_VERSION,
    Between,
    Item,
    check_schema_version,
    equals,
    integer,
    key,
    text,
)

CHANGES = "BILL#changes"
MONTHS = "BILL#months"
MAX_READS = 5
"""How often days are read until all their chunks belong together."""
MAX_CHUNKS = 12
"""3.6 MB compressed, which holds thousands of instances; a transaction takes 4 MB."""
_DAY = timedelta(days=1)


class BillChange(Struct, frozen=True):
    """Hours of a day whose bill changed, which are to be rated again."""

    id: str
    hours: tuple[datetime, ...]
    stored_at: datetime
    """When it was stored."""


class BillStore:
    """The bill by day, its unsettled changes, and which months' bills are closed. All reads are consistent.

    Args:
        table: the ledger's table.
        clock: returns the current time, which is stored with changes.
        chunk_bytes: size of the chunks that a day is stored in.
    """

    def __init__(self, table: Table, *, clock: Callable[[], datetime], chunk_bytes: int = CHUNK_BYTES) -> None:
        self._table = table
        self._clock = clock
        self._chunk_bytes = chunk_bytes

    def bills(self, start: datetime, end: datetime) -> dict[datetime, Bill]:
        """Return the bills of the hours in `[start, end)` that have one, with one query per month."""
        by_hour: dict[datetime, Bill] = {}
        for first, last in _by_month(floor_day(start), end):
            for day, (_, bills) in self._days(first, last).items():
                for number, bill in bills.items():
                    hour = day + number * HOUR
                    if start <= hour < end:
                        by_hour[hour] = bill
        return dict(sorted(by_hour.items()))

    def bill(self, hour: datetime) -> Bill | None:
        """Return an hour's bill; None until it arrives."""
        return self.bills(hour, hour + HOUR).get(hour)

    def store(self, day: datetime, bills: Mapping[datetime, Bill]) -> list[datetime]:
        """Replace the bills of a UTC day, and record which hours changed, in one transaction.

        Storing the same bills again writes nothing.

        Args:
            day: first moment of the day.
            bills: the bills by hour; an hour without one has no bill.

        Returns:
            The hours whose bill changed, oldest first.

        Raises:
            ConflictError: another writer stored the day at the same time; nothing changed.
            SourceError: the table failed, and storing again is safe; or the day is too large for a transaction.
        """
        old_chunks, old = self._days(day, day).get(day, ((), {}))
        document = bill_day_document({(hour - day) // HOUR: bill for hour, bill in bills.items()})
        new = read_bill_day(document)
        changed = sorted(hour for hour in old.keys() | new.keys() if old.get(hour) != new.get(hour))
        if not changed:
            return []
        chunks = pack(document, self._chunk_bytes)
        if len(chunks) > MAX_CHUNKS:
            raise SourceError(
                f"the bill of {day:%Y-%m-%d} is too large: {len(chunks)} chunks of 300 KB; at most {MAX_CHUNKS} fit"
            )
        old_version = text(old_chunks[0], "h") if old_chunks else ""
        version = sha256(b"".join(chunks)).hexdigest()[:16]
        first, *others = [_chunk_item(day, number, len(chunks), version, chunk) for number, chunk in enumerate(chunks)]
        is_unchanged = equals("h", old_version) if old_version else MISSING
        self._table.transact(
            puts=[
                (first, is_unchanged),
                *((item, None) for item in others),
                (self._change_item(day, f"{old_version}-{version}", changed), None),
            ],
            deletes=[(key(*_key(day, number)), None) for number in range(len(chunks), len(old_chunks))],
        )
        return [day + hour * HOUR for hour in changed]

    def pending_changes(self) -> list[BillChange]:
        """Return the changes that are not settled yet, oldest day first."""
        pending = []
        for item in self._table.query(CHANGES):
            check_schema_version(item)
            day = datetime.fromisoformat(text(item, "sk")[:10]).replace(tzinfo=UTC)
            hours = tuple(day + int(number["N"]) * HOUR for number in item["c"]["L"])
            pending.append(BillChange(text(item, "sk"), hours, datetime.fromtimestamp(integer(item, "p"), UTC)))
        return pending

    def settle(self, change: BillChange) -> None:
        """Mark a change as settled, because its hours were queued to be rated again. Settling twice is harmless."""
        self._table.delete_all([key(CHANGES, change.id)])

    def months(self) -> dict[datetime, bool]:
        """Return the months that were read, by their first moment, and whether their bill is closed."""
        is_closed_by_month = {}
        for item in self._table.query(MONTHS):
            check_schema_version(item)
            is_closed_by_month[datetime.fromisoformat(f"{text(item, 'sk')}-01").replace(tzinfo=UTC)] = item["f"]["BOOL"]
        return is_closed_by_month

    def record_month(self, month: datetime, *, is_closed: bool) -> None:
        """Record that a month was read. When it closes, all its hours are rated again, also those without a bill."""
        if is_closed and not self.months().get(month):
            days = [day for day in (month + number * _DAY for number in range(31)) if day.month == month.month]
            # Written before the mark: if the process dies in between, the month is read and closed again.
            self._table.put_all([self._change_item(day, "closed", range(24)) for day in days])
        item: Item = {**key(MONTHS, f"{month:%Y-%m}"), "v": {"N": str(SCHEMA_VERSION)}, "f": {"BOOL": is_closed}}
        self._table.put_all([item])

    def _days(self, first: datetime, last: datetime) -> dict[datetime, tuple[Sequence[Item], dict[int, Bill]]]:
        """Read the days of one month: each day's items, and its bills by number of the hour."""
        for _ in range(MAX_READS):
            items: dict[datetime, list[Item]] = {}
            for item in self._table.query(f"BILL#{first:%Y-%m}", Between(f"{first:%d}", f"{last:%d}~")):
                check_schema_version(item)
                items.setdefault(first.replace(day=int(text(item, "sk")[:2])), []).append(item)
            if all(_belong_together(chunks) for chunks in items.values()):
                return {day: (chunks, unpack(chunks, read_bill_day)) for day, chunks in items.items()}
        raise SourceError(f"the bill of {first:%Y-%m} changed each time it was read")

    def _change_item(self, day: datetime, version: str, hours: Sequence[int]) -> Item:
        return {
            **key(CHANGES, f"{day:%Y-%m-%d}#{version}"),
            "v": {"N": str(SCHEMA_VERSION)},
            "c": {"L": [{"N": str(hour)} for hour in hours]},
            "p": {"N": str(int(self._clock().timestamp()))},
        }


def _key(day: datetime, number: int) -> tuple[str, str]:
    return f"BILL#{day:%Y-%m}", f"{day:%d}#{number:02d}"


def _chunk_item(day: datetime, number: int, count: int, version: str, chunk: bytes) -> Item:
    return {
        **key(*_key(day, number)),
        "v": {"N": str(SCHEMA_VERSION)},
        "h": {"S": version},
        "n": {"N": str(count)},
        "b": {"B": chunk},
    }


def _belong_together(chunks: Sequence[Item]) -> bool:
    """Whether these are all chunks of one version."""
    return len({text(chunk, "h") for chunk in chunks}) == 1 and len(chunks) == integer(chunks[0], "n")


def _by_month(first: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Split the days from `first` up to `end` by month: the first and the last day of each."""
    months = []
    while first < end:
        following = (first.replace(day=1) + timedelta(days=32)).replace(day=1)
        months.append((first, floor_day(min(following, end) - timedelta(microseconds=1))))
        first = following
    return months


BillsOfDay = Mapping[int, Bill]
"""Bills by hour of the day."""


def bill_day_document(day: BillsOfDay) -> dict[str, Any]:
    """Return a day as JSON types."""
    instances: dict[str, dict[int, tuple[Any, ...]]] = {}
    charges: dict[tuple[str, str, str, str], dict[int, tuple[Any, ...]]] = {}
    for hour, bill in sorted(day.items()):
        for instance_id, billed in bill.instances.items():
            figures: tuple[Any, ...] = (
                billed.amount,
                billed.currency,
                billed.billed_ms,
                int(billed.is_final),
                billed.unblended_amount,
            )
            if billed.is_block_fee:
                figures += (1,)
            instances.setdefault(instance_id, {})[hour] = figures
        for cluster, cluster_charges in bill.charges.items():
            for charge in cluster_charges:
                key = (cluster, charge.kind, charge.reference, charge.currency)
                charges.setdefault(key, {})[hour] = (charge.amount, charge.gpu_hours)
    return {
        "hours": {str(hour): int(bill.is_final) for hour, bill in sorted(day.items())},
        "instances": {instance_id: _runs_of_hours(rows) for instance_id, rows in sorted(instances.items())},
        "charges": [[*key, _runs_of_hours(rows)] for key, rows in sorted(charges.items())],
    }


def read_bill_day(document: Mapping[str, Any]) -> dict[int, Bill]:
    """Read what `bill_day_document` returned. Charges are in order of cluster, kind, reference and currency."""
    instances: dict[int, dict[str, BilledHour]] = {int(hour): {} for hour in document["hours"]}
    charges: dict[int, dict[str, list[ClusterCharge]]] = {int(hour): {} for hour in document["hours"]}
    for instance_id, runs in document["instances"].items():
        for first, count, amount, currency, billed_ms, is_final, unblended, *is_block_fee in runs:
            billed = BilledHour(amount, currency, billed_ms, bool(is_final), unblended, bool(is_block_fee))
            for hour in range(first, first + count):
                instances[hour][instance_id] = billed
    for cluster, kind, reference, currency, runs in document["charges"]:
        for first, count, amount, gpu_hours in runs:
            charge = ClusterCharge(kind, reference, amount, currency, gpu_hours)
            for hour in range(first, first + count):
                charges[hour].setdefault(cluster, []).append(charge)
    return {
        int(hour): Bill(instances[int(hour)], charges[int(hour)], bool(is_final))
        for hour, is_final in document["hours"].items()
    }


def _runs_of_hours(by_hour: Mapping[int, tuple[Any, ...]]) -> list[list[Any]]:
    """Return rows of first hour, number of hours, and the figures that these hours share."""
    runs: list[list[Any]] = []
    for hour, figures in sorted(by_hour.items()):
        if runs and hour == runs[-1][0] + runs[-1][1] and tuple(runs[-1][2:]) == figures:
            runs[-1][1] += 1
        else:
            runs.append([hour, 1, *figures])
    return runs
