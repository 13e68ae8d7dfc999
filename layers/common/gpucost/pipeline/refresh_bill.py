"""Reads the bill, month by month, until it is closed, and keeps what each hour cost.

It arrives late and moves until it is closed: an hour whose bill is another one than before is told, to be rated again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpucost.core.errors import SourceError
from gpucost.core.hours import floor_day
from gpucost.core.pricing.bill_lines import (
    BillLine,
    BillSharing,
    build_bill,
    instances_with_mixed_currencies,
    split_by_hour,
)
from gpucost.settings import Settings
from gpucost.settings.bill import CurSettings
from gpucost.storage.bill_ports import BillReader, BillReaders, NodePools, no_node_pools
from gpucost.storage.bill_store import BillStore
from gpucost.storage.ports import Clock

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class BillRefresh:
    """What a refresh found."""

    months: tuple[datetime, ...] = ()
    """That were read, by their first moment."""
    empty: tuple[datetime, ...] = ()
    """Of these, the ones of which the bill says nothing at all (yet): what is known of them stays."""
    closed: tuple[datetime, ...] = ()
    """Of these, the ones that will not be read again."""
    changed: tuple[datetime, ...] = ()
    """Hours whose bill is another one now; `BillStore.changes` tells of them until they are settled."""
    notes: tuple[str, ...] = ()
    bytes_scanned: int = 0


class BillService:
    """Refreshes the bill.

    Args:
        readers: of the export that the settings name.
        store: where it is kept.
        node_pools: needed with `blend: node_pool` only.
        clock: the time now.
    """

    def __init__(
        self, readers: BillReaders, store: BillStore, *, clock: Clock, node_pools: NodePools = no_node_pools
    ) -> None:
        self._readers = readers
        self._store = store
        self._node_pools = node_pools
        self._clock = clock

    def refresh(self, settings: Settings, months: Sequence[datetime] = ()) -> BillRefresh:
        """Read the months that may still move and store what changed; again after a crash ends in the same.

        Args:
            settings: with the section `pricing.cur`; without it there is nothing to do.
            months: to be read in any case, closed or not, in place of those that may still move (after the blend was
                changed, say).

        Raises:
            SourceError: the bill could not be read, or the store failed; days already stored stay.
        """
        cur = settings.pricing.cur
        if cur is None:
            return BillRefresh()
        clusters = tuple(cluster.name for cluster in settings.clusters)
        refreshed = BillRefresh()
        reader = self._readers(cur)
        for month in months or self._open_months(cur):
            refreshed = self._read(reader, month, cur, cur.cluster_of_unused(clusters), refreshed)
        return refreshed

    def _open_months(self, cur: CurSettings) -> list[datetime]:
        """The months that the last days touch and those read before, less the closed ones; oldest first."""
        is_closed = self._store.months()
        now = self._clock()
        month = _month(now - timedelta(days=cur.refresh_days))
        touched = set(is_closed)
        while month <= now:
            touched.add(month)
            month = _next(month)
        return sorted(one for one in touched if not is_closed.get(one))

    def _read(
        self, reader: BillReader, month: datetime, cur: CurSettings, unused_to: str, so_far: BillRefresh
    ) -> BillRefresh:
        end = _next(month)
        pools = self._node_pools(month, end) if cur.blend == "node_pool" else {}
        sharing = BillSharing(cur.blend, pools, unused_to, cur.unused_commitments)
        extract = reader.read(month, end)
        months, scanned = (*so_far.months, month), so_far.bytes_scanned + extract.bytes_scanned
        seen = _LineCounter()
        changed = list(so_far.changed)
        notes = dict.fromkeys(so_far.notes)
        for day, lines in _by_day(seen.all(extract.lines), month, min(end, self._clock())):
            bills = {hour: build_bill(of_hour, sharing) for hour, of_hour in lines.items()}
            changed += self._store.store(day, bills)
            for of_hour in lines.values():
                notes.update(
                    dict.fromkeys(
                        f"the bill of {month:%Y-%m} has instance {instance_id} in two currencies in one hour; "
                        "it is priced by the next source then"
                        for instance_id in instances_with_mixed_currencies(of_hour)
                    )
                )
        if not seen.lines:
            return replace(so_far, months=months, empty=(*so_far.empty, month), bytes_scanned=scanned)
        is_closed = seen.are_final and end <= self._clock()
        self._store.mark(month, is_closed=is_closed)
        return BillRefresh(
            months=months,
            empty=so_far.empty,
            closed=(*so_far.closed, month) if is_closed else so_far.closed,
            changed=tuple(changed),
            notes=tuple(notes),
            bytes_scanned=scanned,
        )


class _LineCounter:
    """How many lines went by, and whether all of them were final."""

    def __init__(self) -> None:
        self.lines = 0
        self.are_final = True

    def all(self, lines: Iterable[BillLine]) -> Iterator[BillLine]:
        for line in lines:
            self.lines += 1
            self.are_final = self.are_final and line.is_final
            yield line


def _by_day(
    lines: Iterable[BillLine], first: datetime, end: datetime
) -> Iterator[tuple[datetime, dict[datetime, list[BillLine]]]]:
    """The lines by day and hour, a day at a time, days without lines included; nothing where there is no line at all.

    Lines come in order of their start, so a day is complete when one of a later day comes.
    """
    waiting: dict[datetime, list[BillLine]] = {}
    day = first
    came = False
    for line in lines:
        came = True
        if line.start < day:
            raise SourceError(f"the bill's lines are not in order: one of {line.start} comes after {day}")
        while line.start >= day + _DAY:
            yield day, _taken(waiting, day)
            day += _DAY
        for hour, part in split_by_hour(line):
            waiting.setdefault(hour, []).append(part)
    while came and day < _next(first) and (day < end or waiting):
        yield day, _taken(waiting, day)
        day += _DAY


def _taken(waiting: dict[datetime, list[BillLine]], day: datetime) -> dict[datetime, list[BillLine]]:
    return {hour: waiting.pop(hour) for hour in sorted(waiting) if floor_day(hour) == day}


def _month(moment: datetime) -> datetime:
    return floor_day(moment).replace(day=1)


def _next(month: datetime) -> datetime:
    return (month + timedelta(days=32)).replace(day=1)
