"""Writes manifests as small items, so that a week of them is one cheap query, and reads them."""

from datetime import datetime

from gpucost.core.decimals import parse_decimal
from gpucost.core.hour_record import Coverage, Status
from gpucost.core.ledger import Manifest
from gpucost.storage import keys
from gpucost.storage.table import SCHEMA_VERSION, Item, check_schema_version, integer, key, text, verify_integrity

_STATUS: dict[str, Status] = {"c": "complete", "p": "provisional", "i": "incomplete"}
_STATUS_CODE = {status: code for code, status in _STATUS.items()}


def manifest_item(manifest: Manifest, expires_at: datetime) -> Item:
    """Return the item of a current version or of an adjustment. Notes have an item of their own."""
    kind: keys.PartitionKind = "adjustments" if manifest.is_adjustment else "hours"
    item: dict[str, dict[str, str]] = {
        **key(keys.partition(manifest.cluster, kind), keys.format_hour(manifest.hour)),
        "v": {"N": str(SCHEMA_VERSION)},
        "s": {"S": _STATUS_CODE[manifest.status]},
        "n": {"N": str(manifest.version)},
        "r": {"S": manifest.run_id},
        "x": {"N": str(manifest.settings_version)},
        "p": {"N": str(keys.to_epoch_seconds(manifest.published_at))},
        "expires_at": {"N": str(keys.to_epoch_seconds(expires_at))},
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
        item["e"] = {"N": str(keys.to_epoch_seconds(manifest.summary_expires_at))}
    if manifest.attempts:
        item["a"] = {"N": str(manifest.attempts)}
    if manifest.next_attempt_at is not None:
        item["t"] = {"N": str(keys.to_epoch_seconds(manifest.next_attempt_at))}
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
            hour=keys.parse_hour(item["sk"]["S"]),
            status=_STATUS[item["s"]["S"]],
            version=int(item["n"]["N"]),
            run_id=item["r"]["S"],
            settings_version=int(item["x"]["N"]),
            coverage=coverage,
            attempts=integer(item, "a"),
            next_attempt_at=keys.from_epoch_seconds(integer(item, "t")) if "t" in item else None,
            published_at=keys.from_epoch_seconds(int(item["p"]["N"])),
            usage_id=text(item, "u"),
            currency=text(item, "c") or "USD",
            is_adjustment=is_adjustment,
            is_backfilled=text(item, "o") == "b",
            summary_expires_at=keys.from_epoch_seconds(integer(item, "e")) if "e" in item else None,
        )
