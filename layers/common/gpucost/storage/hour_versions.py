"""Which version of each hour is in force, and what is recorded beside the hours of frozen months.

| item | pk | sk |
| --- | --- | --- |
| manifest | `C#<cluster>#hours` | `<hour>` |
| manifest beside a frozen one | `C#<cluster>#beside` | `<hour>` |
| frozen month | `MONTHS` | `<month>` |

Every version is put in a transaction on condition that its month is open, or frozen, so that none comes into a month
that was frozen meanwhile. A version beside names the run that it stands beside, and counts only as long as that one is
in force.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpucost.core.hours import month_of
from gpucost.core.ledger import ClosedMonth, Manifest
from gpucost.storage import keys
from gpucost.storage.manifests import read_manifest, write_manifest
from gpucost.storage.table import FORMAT, Item, Table, check_format, key, text, whole

MONTHS = "MONTHS"
NO_RUN = "-"
"""Names the run of an hour that has none."""
Condition = tuple[str, dict[str, dict[str, Any]] | None]
"""An expression, and its values."""


class HourVersions:
    """The manifests of a table, and its frozen months."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def in_force(self, cluster: str, hour: datetime) -> Manifest | None:
        """What readers see of an hour, without its notes."""
        item = self._table.get(keys.partition(cluster, "hours"), keys.hour(hour))
        return None if item is None else read_manifest(cluster, item)

    def newest(self, cluster: str, hour: datetime) -> Manifest | None:
        """What the next version of an hour replaces: the one beside a frozen one, if there is one."""
        own = self.in_force(cluster, hour)
        item = self._table.get(keys.partition(cluster, "beside"), keys.hour(hour))
        return own if item is None else _beside(cluster, item, own) or own

    def put(self, manifest: Manifest, replacing: Manifest | None, expires_at: datetime) -> None:
        """Put a version where it says it belongs: in force, or beside what is.

        Args:
            manifest: the version.
            replacing: the newest one so far, as it was read.
            expires_at: the end of the item.

        Raises:
            ConflictError: the newest version is not the one to be replaced, or the month is frozen, or no longer.
        """
        month, base, own = key(MONTHS, month_of(manifest.hour)), replacing, replace(manifest, is_adjustment=False)
        if replacing is not None and replacing.is_adjustment:
            base = self.in_force(manifest.cluster, manifest.hour)
        item = write_manifest(manifest, expires_at)
        if manifest.is_adjustment:
            if replacing is not None and replacing.is_adjustment:
                condition = _stands_beside(replacing, base)
            else:
                condition = _nothing_beside(base)
            checks = [(month, "attribute_exists(pk)", None), (_key(own), *_is(base))]
            self._table.transact([({**item, "b4": {"S": _run(base)}}, *condition)], checks=checks)
            return
        checks = [(month, "attribute_not_exists(pk)", None)]
        if replacing is not None and replacing.is_adjustment:
            # Its month was opened: it comes into force itself, or what follows it does.
            checks.append((_key(replacing), *_stands_beside(replacing, base)))
        else:  # nor was one recorded beside while the month was frozen for a moment
            checks.append((_key(replace(manifest, is_adjustment=True)), *_nothing_beside(base)))
        self._table.transact([(item, *_is(base))], checks=checks)

    def closed_month(self, month: str) -> ClosedMonth | None:
        """Whether, when, by whom and why a month was frozen."""
        item = self._table.get(MONTHS, month)
        return None if item is None else _read_month(item)

    def closed_months(self) -> list[ClosedMonth]:
        """All of them, in order."""
        return [_read_month(item) for item in self._table.query(MONTHS)]

    def close_month(self, month: ClosedMonth) -> None:
        """Freeze a month.

        Raises:
            ConflictError: it is frozen.
        """
        self._table.put(
            {
                **key(MONTHS, month.month),
                "v": {"N": str(FORMAT)},
                "p": {"N": str(keys.seconds(month.closed_at))},
                "by": {"S": month.author},
                "why": {"S": month.reason},
            },
            "attribute_not_exists(pk)",
        )

    def reopen_month(self, month: str) -> None:
        """Open a month; the versions beside its hours wait to be put in force."""
        self._table.delete_all([key(MONTHS, month)])

    def adjustments(self, cluster: str, items: Iterable[Item], in_force: Iterable[Manifest]) -> list[Manifest]:
        """The versions beside those in force, from the items of one range of hours."""
        own = {manifest.hour: manifest for manifest in in_force}
        found = [_beside(cluster, item, own.get(keys.read_hour(text(item, "sk")))) for item in items]
        return [manifest for manifest in found if manifest is not None]


def _beside(cluster: str, item: Item, in_force: Manifest | None) -> Manifest | None:
    return read_manifest(cluster, item, is_adjustment=True) if text(item, "b4") == _run(in_force) else None


def _run(manifest: Manifest | None) -> str:
    return NO_RUN if manifest is None else manifest.run_id


def _key(manifest: Manifest) -> Item:
    kind: keys.Kind = "beside" if manifest.is_adjustment else "hours"
    return key(keys.partition(manifest.cluster, kind), keys.hour(manifest.hour))


def _is(manifest: Manifest | None) -> Condition:
    """That a version is in force still."""
    if manifest is None:
        return "attribute_not_exists(pk)", None
    return "n = :version AND r = :run", {":version": {"N": str(manifest.version)}, ":run": {"S": manifest.run_id}}


def _stands_beside(manifest: Manifest, base: Manifest | None) -> Condition:
    return "r = :run AND b4 = :base", {":run": {"S": manifest.run_id}, ":base": {"S": _run(base)}}


def _nothing_beside(base: Manifest | None) -> Condition:
    """One that stands beside another run is left over from before its month was opened."""
    return "attribute_not_exists(pk) OR b4 <> :base", {":base": {"S": _run(base)}}


def _read_month(item: Item) -> ClosedMonth:
    check_format(item)
    at = keys.read_instant(whole(item, "p"))
    return ClosedMonth(text(item, "sk"), at, text(item, "by"), text(item, "why"))
