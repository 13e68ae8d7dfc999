"""Restatements as items: each names the run that it put in force and the one that it replaced."""

from collections.abc import Mapping
from datetime import datetime

from gpucost.adapters.dynamodb import blobs, keys
from gpucost.adapters.dynamodb.table import FORMAT, Item, key, text, whole
from gpucost.domain.ledger import Manifest, Restatement
from gpucost.domain.model import Costs, Totals


def restatement_item(restatement: Restatement, run: str, replaced: str, expires_at: datetime) -> Item:
    """An item of its own beside the hour, in pieces never: some hundred business units fit easily."""
    (piece,) = blobs.pack(blobs.restatement_document(restatement))
    return {
        **key(keys.partition(restatement.cluster, "restatements"), f"{keys.hour(restatement.hour)}#{run}"),
        "v": {"N": str(FORMAT)},
        "b": {"B": piece},
        "expires_at": {"N": str(keys.seconds(expires_at))},
        "b4": {"S": replaced},
        "n": {"N": str(restatement.version)},
        "x": {"N": str(restatement.settings_version)},
        "p": {"N": str(keys.seconds(restatement.restated_at))},
        "c": {"S": restatement.currency},
        "c4": {"S": restatement.currency_before},
    }


def chained(
    items: Mapping[tuple[datetime, str], Item], manifest: Manifest, *, until: str | None = None
) -> list[Restatement]:
    """An hour's restatements, first one first: from a version back to what it replaced, and so on.

    What a run that lost left behind is on no chain.

    Args:
        items: of all restatements, by hour and run.
        manifest: the version.
        until: a run before which the chain ends.
    """
    found, run = [], manifest.run_id
    while run != until and (item := items.get((manifest.hour, run))) is not None:
        found.append(_read(manifest, item))
        run = text(item, "b4")
    return found[::-1]


def _read(manifest: Manifest, item: Item) -> Restatement:
    document = blobs.unpack([item["b"]["B"]])
    return Restatement(
        cluster=manifest.cluster,
        hour=manifest.hour,
        version=whole(item, "n"),
        restated_at=keys.read_instant(whole(item, "p")),
        settings_version=whole(item, "x"),
        why=document["why"],
        before=blobs.read_totals(document["before"]),
        after=blobs.read_totals(document["after"]) or Totals(Costs(), None),
        units=blobs.read_changes(document),
        currency=text(item, "c"),
        currency_before=text(item, "c4") or "USD",
        beside=manifest.beside,
    )
