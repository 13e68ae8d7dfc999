"""Writes restatements as items and reads them. Each names the run that it published and the run that it replaced."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gpucost.core.amounts import Costs, Totals
from gpucost.core.ledger import Manifest, Restatement, digest_in_run_id
from gpucost.storage import compressed_documents, keys
from gpucost.storage.table import SCHEMA_VERSION, Item, integer, key, text


def restatement_items(restatement: Restatement, run: str, replaced: str, expires_at: datetime) -> list[Item]:
    """Return a restatement's items: one, and further chunks if thousands of business units changed."""
    partition = keys.partition(restatement.cluster, "restatements")
    sort_key = f"{keys.format_hour(restatement.hour)}#{run}"
    first, *others = compressed_documents.pack(compressed_documents.restatement_document(restatement))
    shared: Item = {"v": {"N": str(SCHEMA_VERSION)}, "expires_at": {"N": str(keys.to_epoch_seconds(expires_at))}}
    facts: Item = {
        "b4": {"S": replaced},
        "n": {"N": str(restatement.version)},
        "x": {"N": str(restatement.settings_version)},
        "p": {"N": str(keys.to_epoch_seconds(restatement.restated_at))},
        "c": {"S": restatement.currency},
        "c4": {"S": restatement.currency_before},
    }
    return [
        {**key(partition, sort_key), **shared, "b": {"B": first}, **facts},
        *(
            {**key(partition, f"{sort_key}#{number:04d}"), **shared, "b": {"B": chunk}}
            for number, chunk in enumerate(others, start=1)
        ),
    ]


def restatement_chain(
    items: Mapping[tuple[datetime, str], Sequence[Item]], manifest: Manifest, *, until: str | None = None
) -> list[Restatement]:
    """Return the restatements that led to a version, oldest first. Each names the run that it replaced.

    Items of runs that lost a race are not in the chain. A run that published the same figures under other settings is
    in the chain, but it is not a restatement.

    Args:
        items: the items of all restatements of the hour, by hour and run, in order.
        manifest: the version.
        until: the run at which the chain ends, itself not included.
    """
    restatements, run = [], manifest.run_id
    while run != until and (run_items := items.get((manifest.hour, run))):
        replaced = text(run_items[0], "b4")
        if digest_in_run_id(run) != digest_in_run_id(replaced):
            restatements.append(_read(manifest, run_items))
        run = replaced
    return restatements[::-1]


def _read(manifest: Manifest, items: Sequence[Item]) -> Restatement:
    item = items[0]
    return compressed_documents.unpack(items, lambda document: _restatement(manifest, item, document))


def _restatement(manifest: Manifest, item: Item, document: dict[str, Any]) -> Restatement:
    return Restatement(
        cluster=manifest.cluster,
        hour=manifest.hour,
        version=integer(item, "n"),
        restated_at=keys.from_epoch_seconds(integer(item, "p")),
        settings_version=integer(item, "x"),
        reason=document["reason"],
        before=compressed_documents.read_totals(document["before"]),
        after=compressed_documents.read_totals(document["after"]) or Totals(Costs(), None),
        changed_units=compressed_documents.read_changed_units(document),
        currency=text(item, "c"),
        currency_before=text(item, "c4"),
        is_adjustment=manifest.is_adjustment,
    )
