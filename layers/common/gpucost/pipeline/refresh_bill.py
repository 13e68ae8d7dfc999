"""Reads the bill month by month until it is closed, and stores what each hour cost.

The bill arrives late and changes until it is closed. Hours whose bill changed are recorded, to be rated again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpucost.core.errors import SourceError
from gpucost.core.hours import floor_day
from gpucost.core.metering.instance_types import instance_id_of
from gpucost.core.pricing.bill import BillLine, BillSharing, build_bill, instances_with_mixed_currencies, split_by_hour
from gpucost.settings import CoreSettings
from gpucost.settings.pricing import CurSettings
from gpucost.storage.bill_store import BillStore
from gpucost.storage.ports import Clock, PublishedHours, SettingsStore

if TYPE_CHECKING:
    from gpucost.sources.bill import AthenaBill

BillReaderFactory = Callable[[CurSettings], "AthenaBill"]
"""Creates the reader of an export."""
NodePoolLookup = Callable[[datetime, datetime], Mapping[str, str]]
"""Returns the node pool by instance id, of nodes in a period."""

_DAY = timedelta(days=1)


class BillRefresh(Struct, frozen=True):
    """The result of a refresh."""

    months: tuple[datetime, ...] = ()
    """Months that were read, by their first moment."""
    empty_months: tuple[datetime, ...] = ()
    """Of these, months without any line in the bill (yet); what is stored of them stays."""
    closed_months: tuple[datetime, ...] = ()
    """Of these, months that will not be read again."""
    changed_hours: tuple[datetime, ...] = ()
    """Hours whose bill changed; `BillStore.changes` returns them until they are settled."""
    notes: tuple[str, ...] = ()
    bytes_scanned: int = 0


class LedgerNodePools:
    """Node pools by instance id, as the nodes of published hours name them."""

    def __init__(self, settings_store: SettingsStore, ledger: PublishedHours) -> None:
        self._settings_store = settings_store
        self._ledger = ledger

    def __call__(self, start: datetime, end: datetime) -> Mapping[str, str]:
        """Return the node pools of all clusters' nodes in `[start, end)`; nodes without a known one are left out."""
        return {
            instance_id_of(node.provider_id): node.node_pool
            for cluster in self._settings_store.current().clusters(start)
            for node in self._ledger.all_nodes(cluster, start, end)
            if node.node_pool
        }


class BillRefreshService:
    """Refreshes the bill.

    Args:
        create_reader: creates a reader of the export that the settings name.
        store: where the bill is stored.
        node_pools: returns node pools by instance; needed with `blend: node_pool` only.
        clock: returns the current time.
    """

    def __init__(
        self,
        create_reader: BillReaderFactory,
        store: BillStore,
        *,
        clock: Clock,
        node_pools: NodePoolLookup = lambda _start, _end: {},
    ) -> None:
        self._create_reader = create_reader
        self._store = store
        self._node_pools = node_pools
        self._clock = clock

    def refresh(self, settings: CoreSettings, months: Sequence[datetime] = ()) -> BillRefresh:
        """Read the months whose bill may still change, and store what changed. Safe to repeat after a crash.

        Args:
            settings: the settings; without the section `pricing.cur` there is nothing to do.
            months: months to read instead, closed or not, for example after a change of `blend`.

        Raises:
            SourceError: the bill could not be read, or the store failed; days that are already stored stay.
        """
        cur = settings.pricing.cur
        if cur is None:
            return BillRefresh()
        clusters = tuple(cluster.name for cluster in settings.clusters)
        sharing = BillSharing(
            cur.blend,
            unused_charged_to=cur.cluster_of_unused_commitments(clusters),
            unused_kinds=cur.unused_commitments,
            capacity_blocks=frozenset(block.reservation_id for block in settings.pricing.capacity_blocks),
        )
        refreshed = BillRefresh()
        reader = self._create_reader(cur)
        for month in months or self._open_months(cur):
            refreshed = self._refresh_month(reader, month, sharing, refreshed)
        return refreshed

    def _open_months(self, cur: CurSettings) -> list[datetime]:
        """Return the months of the last days and those read before, without closed ones, oldest first."""
        is_closed = self._store.months()
        now = self._clock()
        month = _month_start(now - timedelta(days=cur.refresh_days))
        months = set(is_closed)
        while month <= now:
            months.add(month)
            month = _next_month(month)
        return sorted(month for month in months if not is_closed.get(month))

    def _refresh_month(
        self, reader: "AthenaBill", month: datetime, sharing: BillSharing, so_far: BillRefresh
    ) -> BillRefresh:
        end = _next_month(month)
        if sharing.blend == "node_pool":
            sharing = replace(sharing, node_pools=self._node_pools(month, end))
        extract = reader.read(month, end)
        months, scanned = (*so_far.months, month), so_far.bytes_scanned + extract.bytes_scanned
        counter = _LineCounter()
        changed = list(so_far.changed_hours)
        notes = dict.fromkeys(so_far.notes)
        for day, lines in _by_day(counter.count(extract.lines), month, min(end, self._clock())):
            bills = {hour: build_bill(hour_lines, sharing) for hour, hour_lines in lines.items()}
            changed += self._store.store(day, bills)
            for hour_lines in lines.values():
                notes.update(
                    dict.fromkeys(
                        f"the bill of {month:%Y-%m} has instance {instance_id} in two currencies in one hour; "
                        "in such an hour the next price source applies"
                        for instance_id in instances_with_mixed_currencies(hour_lines)
                    )
                )
        if not counter.lines:
            return replace(so_far, months=months, empty_months=(*so_far.empty_months, month), bytes_scanned=scanned)
        is_closed = counter.are_final and end <= self._clock()
        self._store.record_month(month, is_closed=is_closed)
        return BillRefresh(
            months=months,
            empty_months=so_far.empty_months,
            closed_months=(*so_far.closed_months, month) if is_closed else so_far.closed_months,
            changed_hours=tuple(changed),
            notes=tuple(notes),
            bytes_scanned=scanned,
        )


class _LineCounter:
    """Counts lines as they are read, and notes whether all of them were final."""

    def __init__(self) -> None:
        self.lines = 0
        self.are_final = True

    def count(self, lines: Iterable[BillLine]) -> Iterator[BillLine]:
        for line in lines:
            self.lines += 1
            self.are_final = self.are_final and line.is_final
            yield line


def _by_day(
    lines: Iterable[BillLine], first: datetime, end: datetime
) -> Iterator[tuple[datetime, dict[datetime, list[BillLine]]]]:
    """Group lines by day and hour, and yield each day, days without lines included; nothing if there is no line.

    Lines are in order of their start, so a day is complete when a line of a later day comes.
    """
    waiting: dict[datetime, list[BillLine]] = {}
    day = first
    has_lines = False
    for line in lines:
        has_lines = True
        if line.start < day:
            raise SourceError(
                f"the bill's lines are not in order: a line of {line.start} follows one of {day} or later"
            )
        while line.start >= day + _DAY:
            yield day, _pop_day(waiting, day)
            day += _DAY
        for hour, part in split_by_hour(line):
            waiting.setdefault(hour, []).append(part)
    while has_lines and day < _next_month(first) and (day < end or waiting):
        yield day, _pop_day(waiting, day)
        day += _DAY


def _pop_day(waiting: dict[datetime, list[BillLine]], day: datetime) -> dict[datetime, list[BillLine]]:
    return {hour: waiting.pop(hour) for hour in sorted(waiting) if floor_day(hour) == day}


def _month_start(moment: datetime) -> datetime:
    return floor_day(moment).replace(day=1)


def _next_month(month: datetime) -> datetime:
    return (month + timedelta(days=32)).replace(day=1)
