"""Stores recommendations, reviews and metrics of days in the ledger's table (docs/contributing/ledger.md).

| item | pk | sk |
| --- | --- | --- |
| recommendation | `C#<cluster>#recommendations` | `<id>` |
| review | `C#<cluster>#reviews` | `newest#<piece>` |
| GPU memory peaks of a day | `C#<cluster>#memory` | `<day>#<piece>` |
| waiting pods of a day | `C#<cluster>#waiting` | `<day>#<piece>` |
| request latency of a day | `C#<cluster>#latency` | `<day>#<piece>` |

A recommendation is one item, and each write requires the stored version. So the daily review and a person who dismisses
a recommendation never overwrite each other. Withdrawn and verified recommendations expire.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import TypeAdapter

from gpucost.features.recommendations.history import PodLatency, PodWait
from gpucost.features.recommendations.lifecycle import WITHDRAWN_RETENTION, offered
from gpucost.features.recommendations.model import Recommendation, RecommendationContent, Review
from gpucost.storage import compressed_documents as blobs
from gpucost.storage.chunked_documents import PackedDocument, chunk_sort_key, replacing_puts, retry_conflicts
from gpucost.storage.ports import Table
from gpucost.storage.table import (
    SCHEMA_VERSION,
    Between,
    Comparison,
    Item,
    MissingOr,
    StartsWith,
    check_schema_version,
    equals,
    key,
    partition_key,
    text,
    to_epoch_seconds,
    verify_integrity,
)

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
        return [_read(item) for item in self._table.query(partition_key(cluster, "recommendations"))]

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
        end = {} if kept is None else {"expires_at": {"N": str(to_epoch_seconds(saved.since + kept))}}
        item: Item = {
            **key(partition_key(saved.content.subject.cluster, "recommendations"), saved.id),
            "v": {"N": str(SCHEMA_VERSION)},
            "n": {"N": str(saved.version)},
            "b": {"B": zlib.compress(_RECOMMENDATION.dump_json(saved, exclude=_COMPUTED))},
            **end,
        }
        if recommendation.version:
            self._table.put(item, equals("n", recommendation.version))
        else:
            # DynamoDB deletes expired items only after some days.
            now = to_epoch_seconds(saved.last_recommended)
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
            pk = partition_key(review.cluster, "reviews")
            self._table.transact(
                replacing_puts(pk, _NEWEST, pieces, packed.generation),
                [(key(pk, chunk_sort_key(_NEWEST, index)), None) for index in range(len(pieces), len(packed.chunks))],
            )

        retry_conflicts(write)

    def _packed(self, cluster: str) -> tuple[PackedDocument, Review | None]:
        packed = PackedDocument()
        for item in self._table.query(partition_key(cluster, "reviews"), StartsWith(_NEWEST)):
            packed.add_chunk(item)
        return packed, _REVIEW.validate_python(packed.read(None)) if packed.chunks else None


def _read(item: Item) -> Recommendation:
    check_schema_version(item)
    with verify_integrity(item):
        return _RECOMMENDATION.validate_json(zlib.decompress(item["b"]["B"]))


class DailyItems:
    """Rows by cluster and day.

    Args:
        table: the ledger's table.
        name: the last part of the partition key.
    """

    def __init__(self, table: Table, name: Literal["memory", "waiting", "latency"]) -> None:
        self._table = table
        self._name = name

    def put(self, cluster: str, day: datetime, rows: Sequence[Sequence[Any]], expires_at: datetime) -> None:
        """Store the rows of a day until a time."""
        self._table.put_all(
            [
                {
                    **key(partition_key(cluster, self._name), f"{day:%Y-%m-%d}#{index:04d}"),
                    "v": {"N": str(SCHEMA_VERSION)},
                    "b": {"B": piece},
                    "expires_at": {"N": str(to_epoch_seconds(expires_at))},
                }
                for index, piece in enumerate(blobs.pack(list(rows)))
            ]
        )

    def read(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, list[Any]]:
        """The stored rows of days in `[start, end)`."""
        pk = partition_key(cluster, self._name)
        days: dict[str, list[Item]] = {}
        for item in self._table.query(pk, Between(f"{start:%Y-%m-%d}", f"{end:%Y-%m-%d}")):
            check_schema_version(item)
            days.setdefault(text(item, "sk").partition("#")[0], []).append(item)
        return {
            datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC): blobs.unpack(items) for day, items in days.items()
        }


class DynamoGpuMemory:
    """A packed document per cluster and UTC day."""

    def __init__(self, table: Table) -> None:
        self._days = DailyItems(table, "memory")

    def put_memory(
        self, cluster: str, day: datetime, peaks: Mapping[tuple[str, str], float], expires_at: datetime
    ) -> None:
        """Store a day until a time."""
        rows = [[namespace, pod, round(peak)] for (namespace, pod), peak in sorted(peaks.items())]
        self._days.put(cluster, day, rows, expires_at)

    def memory(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, dict[tuple[str, str], float]]:
        """The stored days in `[start, end)`."""
        rows_by_day = self._days.read(cluster, start, end)
        return {
            day: {(namespace, pod): float(peak) for namespace, pod, peak in rows} for day, rows in rows_by_day.items()
        }


_DIGITS = 4
"""Digits of a part of an hour: a third of a second."""


class DynamoWaitingPods:
    """A packed document per cluster and UTC day."""

    def __init__(self, table: Table) -> None:
        self._days = DailyItems(table, "waiting")

    def put_waits(self, cluster: str, day: datetime, waits: Sequence[PodWait], expires_at: datetime) -> None:
        """Store a day until a time."""
        rows = [[*wait[:-1], [[hour, round(part, _DIGITS)] for hour, part in wait.hours]] for wait in waits]
        self._days.put(cluster, day, rows, expires_at)

    def waits(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, list[PodWait]]:
        """The stored days in `[start, end)`."""
        return {
            day: [
                PodWait._make((*row, tuple((int(hour), float(part)) for hour, part in hours))) for *row, hours in rows
            ]
            for day, rows in self._days.read(cluster, start, end).items()
        }


class DynamoRequestLatency:
    """A packed document per cluster and UTC day."""

    def __init__(self, table: Table) -> None:
        self._days = DailyItems(table, "latency")

    def put_latencies(self, cluster: str, day: datetime, latencies: Sequence[PodLatency], expires_at: datetime) -> None:
        """Store a day until a time."""
        rows = [
            [pod.namespace, pod.pod, [[hour, round(requests), round(p95, 4)] for hour, requests, p95 in pod.hours]]
            for pod in latencies
        ]
        self._days.put(cluster, day, rows, expires_at)

    def latencies(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, list[PodLatency]]:
        """The stored days in `[start, end)`."""
        return {
            day: [
                PodLatency(
                    namespace, pod, tuple((int(hour), float(requests), float(p95)) for hour, requests, p95 in hours)
                )
                for namespace, pod, hours in rows
            ]
            for day, rows in self._days.read(cluster, start, end).items()
        }
