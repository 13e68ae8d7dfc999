"""Builds the look-back of simulated hours and reviews it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from gpucost.core.hour_record import HourRecord
from gpucost.features.recommendations.history import LookBack, PodLatency
from gpucost.features.recommendations.model import Review
from gpucost.features.recommendations.review import review_cluster
from tests.records import compact_line_of


def look_back_of(
    records: Sequence[HourRecord],
    memory: Mapping[datetime, Mapping[tuple[str, str], float]] | None = None,
    latencies: Mapping[datetime, Sequence[PodLatency]] | None = None,
) -> LookBack:
    """The look-back of all complete hours, with GPU memory peaks and request latency by day and pod."""
    look_back = LookBack("demo", records[0].hour, len(records))
    look_back.memory_peaks.update(memory or {})
    look_back.add_latencies(latencies or {})
    for record in records:
        if record.status != "incomplete":
            look_back.add_hour(record.hour, map(compact_line_of, record.lines), record.nodes, record.currency)
    return look_back


def review_of(records: Sequence[HourRecord]) -> Review:
    """Review a cluster two hours after its last record."""
    return review_cluster(look_back_of(records), records[-1].hour + timedelta(hours=2), {})
