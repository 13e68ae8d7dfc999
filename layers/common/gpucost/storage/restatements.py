"""Restatements as items: each names the run that it put in force and the one that it replaced."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gpucost.core.ledger import Manifest, Restatement, digest_of_run
from gpucost.core.model import Costs, Totals
from gpucost.storage import compressed_documents as blobs
from gpucost.storage import keys
from gpucost.storage.table import FORMAT, Item, key, text, whole


def restatement_items(restatement: Restatement, run: str, replaced: str, expires_at: datetime) -> list[Item]:
    """Items beside the hour: one, and as many more as thousands of business units need."""
    partition = keys.partition(restatement.cluster, "restatements")
    own = f"{keys.hour(restatement.hour)}#{run}"
    first, *others = blobs.pack(blobs.restatement_document(restatement))
    shared: Item = {"v": {"N": str(FORMAT)}, "expires_at": {"N": str(keys.seconds(expires_at))}}
    facts: Item = {
        "b4": {"S": replaced},
        "n": {"N": str(restatement.version)},
        "x": {"N": str(restatement.settings_version)},
        "p": {"N": str(keys.seconds(restatement.restated_at))},
        "c": {"S": restatement.currency},
        "c4": {"S": restatement.currency_before},
    }
    return [
        {**key(partition, own), **shared, "b": {"B": first}, **facts},
        *(
            {**key(partition, f"{own}#{place:04d}"), **shared, "b": {"B": piece}}
            for place, piece in enumerate(others, start=1)
        ),
    ]


def chained(
    items: Mapping[tuple[datetime, str], Sequence[Item]], manifest: Manifest, *, until: str | None = None
) -> list[Restatement]:
    """An hour's restatements, first one first: from a version back to what it replaced, and so on.

    What a run that lost left behind is on no chain; one that says what the run before it said, under other settings, is
    a link of it and changed nothing.

    Args:
        items: of all restatements, by hour and run, in order.
        manifest: the version.
        until: a run before which the chain ends.
    """
    found, run = [], manifest.run_id
    while run != until and (own := items.get((manifest.hour, run))):
        before = text(own[0], "b4")
        if digest_of_run(run) != digest_of_run(before):
            found.append(_read(manifest, own))
        run = before
    return found[::-1]


def _read(manifest: Manifest, items: Sequence[Item]) -> Restatement:
    item = items[0]
    return blobs.unpack(items, lambda document: _restatement(manifest, item, document))


def _restatement(manifest: Manifest, item: Item, document: dict[str, Any]) -> Restatement:
    return Restatement(
        cluster=manifest.cluster,
        hour=manifest.hour,
        version=whole(item, "n"),
        restated_at=keys.read_instant(whole(item, "p")),
        settings_version=whole(item, "x"),
        reason=document["why"],
        before=blobs.read_totals(document["before"]),
        after=blobs.read_totals(document["after"]) or Totals(Costs(), None),
        units=blobs.read_changes(document),
        currency=text(item, "c"),
        currency_before=text(item, "c4"),
        is_adjustment=manifest.is_adjustment,
    )
