"""The current version of each hour, the pending adjustments of closed months, and which months are closed.

| item | pk | sk |
| --- | --- | --- |
| manifest | `C#<cluster>#hours` | `<hour>` |
| manifest of a pending adjustment | `C#<cluster>#adjustments` | `<hour>` |
| closed month | `MONTHS` | `<month>` |

Each version is written in a transaction that checks whether its month is open or closed, so that no version changes
the figures of a month that was closed meanwhile. An adjustment names the run of the version that it would replace
(`b4`), and counts only as long as that version is current.
"""

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from gpucost.core.decimals import parse_decimal
from gpucost.core.hour_record import Coverage, Status
from gpucost.core.hours import month_of
from gpucost.core.ledger import ClosedMonth, Manifest
from gpucost.storage.ports import Table
from gpucost.storage.table import (
    MISSING,
    PRESENT,
    SCHEMA_VERSION,
    AllOf,
    Comparison,
    Condition,
    Item,
    MissingOr,
    PartitionKind,
    check_schema_version,
    equals,
    format_hour,
    from_epoch_seconds,
    integer,
    key,
    parse_hour,
    partition_key,
    text,
    to_epoch_seconds,
    verify_integrity,
)

# Writes manifests as small items, so that a week of them is one cheap query, and reads them.

_STATUS: dict[str, Status] = {"c": "complete", "p": "provisional", "i": "incomplete"}
_STATUS_CODE = {status: code for code, status in _STATUS.items()}


def manifest_item(manifest: Manifest, expires_at: datetime) -> Item:
    """Return the item of a current version or of an adjustment. Notes have an item of their own."""
    kind: PartitionKind = "adjustments" if manifest.is_adjustment else "hours"
    item: dict[str, dict[str, str]] = {
        **key(partition_key(manifest.cluster, kind), format_hour(manifest.hour)),
        "v": {"N": str(SCHEMA_VERSION)},
        "s": {"S": _STATUS_CODE[manifest.status]},
        "n": {"N": str(manifest.version)},
        "r": {"S": manifest.run_id},
        "x": {"N": str(manifest.settings_version)},
        "p": {"N": str(to_epoch_seconds(manifest.published_at))},
        "expires_at": {"N": str(to_epoch_seconds(expires_at))},
    }
    if manifest.coverage is not None:
        item["ca"] = {"N": str(manifest.coverage.allocation)}
        if manifest.coverage.utilization is not None:
            item["cu"] = {"N": str(manifest.coverage.utilization)}
    if manifest.usage_id:
        item["u"] = {"S": manifest.usage_id}
    if manifest.currency != "USD":
        item["c"] = {"S": manifest.currency}
    if manifest.is_backfilled:
        item["o"] = {"S": "b"}
    if manifest.summary_expires_at is not None:
        item["e"] = {"N": str(to_epoch_seconds(manifest.summary_expires_at))}
    if manifest.attempts:
        item["a"] = {"N": str(manifest.attempts)}
    if manifest.next_attempt_at is not None:
        item["t"] = {"N": str(to_epoch_seconds(manifest.next_attempt_at))}
    return item


def read_manifest(cluster: str, item: Item, *, is_adjustment: bool = False) -> Manifest:
    """Read a manifest from its item, without its notes.

    Raises:
        IntegrityError: the item is damaged.
        SourceError: a newer version wrote it.
    """
    check_schema_version(item)
    with verify_integrity(item):
        coverage = None
        if "ca" in item:
            coverage = Coverage(
                parse_decimal(item["ca"]["N"]), parse_decimal(item["cu"]["N"]) if "cu" in item else None
            )
        return Manifest(
            cluster=cluster,
            hour=parse_hour(item["sk"]["S"]),
            status=_STATUS[item["s"]["S"]],
            version=int(item["n"]["N"]),
            run_id=item["r"]["S"],
            settings_version=int(item["x"]["N"]),
            coverage=coverage,
            attempts=integer(item, "a"),
            next_attempt_at=from_epoch_seconds(integer(item, "t")) if "t" in item else None,
            published_at=from_epoch_seconds(int(item["p"]["N"])),
            usage_id=text(item, "u"),
            currency=text(item, "c") or "USD",
            is_adjustment=is_adjustment,
            is_backfilled=text(item, "o") == "b",
            summary_expires_at=from_epoch_seconds(integer(item, "e")) if "e" in item else None,
        )


# Versions of hours, and closed months.

MONTHS = "MONTHS"
NO_RUN = "-"
"""Stands for the run of an hour that was never published."""


class HourVersions:
    """Reads and writes the manifests of hours, and which months are closed."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def current(self, cluster: str, hour: datetime) -> Manifest | None:
        """Return the current version of an hour, which readers see, without its notes."""
        item = self._table.get(partition_key(cluster, "hours"), format_hour(hour))
        return None if item is None else read_manifest(cluster, item)

    def newest(self, cluster: str, hour: datetime) -> Manifest | None:
        """Return the version that the next one replaces: the hour's pending adjustment, else its current version."""
        current = self.current(cluster, hour)
        item = self._table.get(partition_key(cluster, "adjustments"), format_hour(hour))
        return current if item is None else _read_adjustment(cluster, item, current) or current

    def put(self, manifest: Manifest, replacing: Manifest | None, expires_at: datetime) -> None:
        """Write a version as the current one or, if it says so, as a pending adjustment.

        Args:
            manifest: the version.
            replacing: the newest version so far, as it was read.
            expires_at: when the item expires.

        Raises:
            ConflictError: `replacing` is no longer the newest version, or the month was closed or reopened meanwhile.
        """
        month, current = key(MONTHS, month_of(manifest.hour)), replacing
        if replacing is not None and replacing.is_adjustment:
            current = self.current(manifest.cluster, manifest.hour)
        item = manifest_item(manifest, expires_at)
        if manifest.is_adjustment:
            if replacing is not None and replacing.is_adjustment:
                condition = _is_adjustment_of(replacing, current)
            else:
                condition = _has_no_adjustment(current)
            checks = [(month, PRESENT), (_key(replace(manifest, is_adjustment=False)), _is_current(current))]
            self._table.transact([({**item, "b4": {"S": _run_id(current)}}, condition)], checks=checks)
            return
        checks = [(month, MISSING)]
        if replacing is not None and replacing.is_adjustment:
            # The month was reopened: the adjustment itself becomes current, or a version that follows it.
            checks.append((_key(replacing), _is_adjustment_of(replacing, current)))
        else:  # the month may have been closed for a moment, and an adjustment recorded then
            checks.append((_key(replace(manifest, is_adjustment=True)), _has_no_adjustment(current)))
        self._table.transact([(item, _is_current(current))], checks=checks)

    def closed_month(self, month: str) -> ClosedMonth | None:
        """Return when, by whom and why a month was closed; None if it is open."""
        item = self._table.get(MONTHS, month)
        return None if item is None else _read_month(item)

    def closed_months(self) -> list[ClosedMonth]:
        """Return all closed months, in order."""
        return [_read_month(item) for item in self._table.query(MONTHS)]

    def close_month(self, month: ClosedMonth) -> None:
        """Close a month.

        Raises:
            ConflictError: it is closed already.
        """
        self._table.put(
            {
                **key(MONTHS, month.month),
                "v": {"N": str(SCHEMA_VERSION)},
                "p": {"N": str(to_epoch_seconds(month.closed_at))},
                "by": {"S": month.author},
                "reason": {"S": month.reason},
            },
            MISSING,
        )

    def reopen_month(self, month: str) -> None:
        """Reopen a month. Its adjustments stay pending until they are applied."""
        self._table.delete_all([key(MONTHS, month)])

    def adjustments(self, cluster: str, items: Iterable[Item], current_versions: Iterable[Manifest]) -> list[Manifest]:
        """Return the pending adjustments among the items of a range of hours.

        Args:
            cluster: whose items they are.
            items: the adjustments' items, as they were read.
            current_versions: the current versions of the same hours.
        """
        current = {manifest.hour: manifest for manifest in current_versions}
        pending = [_read_adjustment(cluster, item, current.get(parse_hour(text(item, "sk")))) for item in items]
        return [manifest for manifest in pending if manifest is not None]


def _read_adjustment(cluster: str, item: Item, current: Manifest | None) -> Manifest | None:
    """Read an adjustment; None if it would replace a version that is no longer current."""
    return read_manifest(cluster, item, is_adjustment=True) if text(item, "b4") == _run_id(current) else None


def _run_id(manifest: Manifest | None) -> str:
    return NO_RUN if manifest is None else manifest.run_id


def _key(manifest: Manifest) -> Item:
    kind: PartitionKind = "adjustments" if manifest.is_adjustment else "hours"
    return key(partition_key(manifest.cluster, kind), format_hour(manifest.hour))


def _is_current(manifest: Manifest | None) -> Condition:
    """The condition that a version is still the current one."""
    if manifest is None:
        return MISSING
    return AllOf((equals("n", manifest.version), equals("r", manifest.run_id)))


def _is_adjustment_of(manifest: Manifest, current: Manifest | None) -> Condition:
    return AllOf((equals("r", manifest.run_id), equals("b4", _run_id(current))))


def _has_no_adjustment(current: Manifest | None) -> Condition:
    """The condition that no adjustment is pending; one of another run is from before the month was reopened."""
    return MissingOr(Comparison("b4", "<>", _run_id(current)))


def _read_month(item: Item) -> ClosedMonth:
    check_schema_version(item)
    closed_at = from_epoch_seconds(integer(item, "p"))
    return ClosedMonth(text(item, "sk"), closed_at, text(item, "by"), text(item, "reason"))
