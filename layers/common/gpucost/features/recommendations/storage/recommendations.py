"""Stores recommendations and reviews in the ledger's table (docs/contributing/ledger.md).

| item | pk | sk |
| --- | --- | --- |
| recommendation | `C#<cluster>#recommendations` | `<id>` |
| review | `C#<cluster>#reviews` | `newest#<piece>` |

A recommendation is one item, and each write requires the stored version. So the daily review and a person who dismisses
a recommendation never overwrite each other. Withdrawn and verified recommendations expire.
"""

import zlib
from dataclasses import replace
from datetime import timedelta

from pydantic import TypeAdapter

from gpucost.features.recommendations.lifecycle import WITHDRAWN_RETENTION
from gpucost.features.recommendations.model import Recommendation, RecommendationContent, Review
from gpucost.features.recommendations.plan import offered
from gpucost.storage import compressed_documents as blobs
from gpucost.storage import keys
from gpucost.storage.conditions import Comparison, MissingOr, StartsWith, equals
from gpucost.storage.packed_items import PackedDocument, chunk_sort_key, replacing_puts, retry_conflicts
from gpucost.storage.ports import Table
from gpucost.storage.table import SCHEMA_VERSION, Item, check_schema_version, key, verify_integrity

_RECOMMENDATION = TypeAdapter(Recommendation)
_REVIEW = TypeAdapter(Review)
_NEWEST = "newest"
_COMPUTED = {"offer", "alternative_to"}
"""They depend on the other open recommendations, so they are set when all are read."""
VERIFIED_RETENTION = timedelta(days=400)


class DynamoRecommendations:
    """Stores one item per recommendation, and one review per cluster."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def recommendations(self, cluster: str) -> list[Recommendation]:
        """All recommendations of a cluster, by id."""
        return [_read(item) for item in self._table.query(keys.partition(cluster, "recommendations"))]

    def open_savings_on_workloads(self, cluster: str) -> list[RecommendationContent]:
        """What the plan of a cluster's open recommendations proposes for workloads."""
        contents = [each.content for each in offered(self.recommendations(cluster)) if each.offer == "plan"]
        return [content for content in contents if content.subject.is_workload and content.saving.usd > 0]

    def put(self, recommendation: Recommendation) -> Recommendation:
        """Write a recommendation if its version is still the stored one, and return it with the next version.

        Raises:
            ConflictError: someone else wrote first.
        """
        saved = replace(recommendation, version=recommendation.version + 1)
        kept = {"withdrawn": WITHDRAWN_RETENTION, "verified": VERIFIED_RETENTION}.get(saved.state)
        end = {} if kept is None else {"expires_at": {"N": str(keys.to_epoch_seconds(saved.since + kept))}}
        item: Item = {
            **key(keys.partition(saved.content.subject.cluster, "recommendations"), saved.id),
            "v": {"N": str(SCHEMA_VERSION)},
            "n": {"N": str(saved.version)},
            "b": {"B": zlib.compress(_RECOMMENDATION.dump_json(saved, exclude=_COMPUTED))},
            **end,
        }
        if recommendation.version:
            self._table.put(item, equals("n", recommendation.version))
        else:
            # DynamoDB deletes expired items only after some days.
            now = keys.to_epoch_seconds(saved.last_recommended)
            self._table.put(item, MissingOr(Comparison("expires_at", "<", now)))
        return saved

    def review(self, cluster: str) -> Review | None:
        """The newest review of a cluster, without its recommendations."""
        return retry_conflicts(lambda: self._packed(cluster)[1])

    def put_review(self, review: Review) -> None:
        """Replace a cluster's review, unless the stored one is newer."""

        def write() -> None:
            packed, stored = self._packed(review.cluster)
            if stored is not None and stored.reviewed_at > review.reviewed_at:
                return
            document = _REVIEW.dump_python(replace(review, recommendations=()), mode="json")
            pieces = blobs.pack(document)
            partition = keys.partition(review.cluster, "reviews")
            self._table.transact(
                replacing_puts(partition, _NEWEST, pieces, packed.generation),
                [
                    (key(partition, chunk_sort_key(_NEWEST, index)), None)
                    for index in range(len(pieces), len(packed.chunks))
                ],
            )

        retry_conflicts(write)

    def _packed(self, cluster: str) -> tuple[PackedDocument, Review | None]:
        packed = PackedDocument()
        for item in self._table.query(keys.partition(cluster, "reviews"), StartsWith(_NEWEST)):
            packed.add_chunk(item)
        return packed, _REVIEW.validate_python(packed.read(None)) if packed.chunks else None


def _read(item: Item) -> Recommendation:
    check_schema_version(item)
    with verify_integrity(item):
        return _RECOMMENDATION.validate_json(zlib.decompress(item["b"]["B"]))
