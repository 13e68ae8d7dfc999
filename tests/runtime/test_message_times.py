"""No message is about a time in the future: the sender's clock, or the sender, is wrong."""

import json
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from gpucost.core.errors import InvalidMessageError
from gpucost.runtime.messages import (
    ExportDue,
    PricesDue,
    RecommendationsDue,
    ScheduledTick,
    read_alert_input,
    read_attribute_input,
    read_event,
    read_external_alerts,
)

NOW = datetime(2026, 11, 19, 10, 5, tzinfo=UTC)
SKEWED = "2026-11-19T10:20:00Z"
"""The latest time that a sender's clock may have."""
HOURS = {"cluster": "c", "settings_version": 1, "correlation_id": "w"}
DUE = {**HOURS, "kind": "hours-due", "origin": "schedule", "hours": 1}
RESTATE = {**HOURS, "kind": "hours-to-restate", "reason": "r", "first_hour": "2026-11-19T07:00:00Z"}
PUBLISHED = {**HOURS, "kind": "hour-published", "origin": "schedule", "status": "complete", "record_version": 1}
TICK: dict[str, Any] = {"kind": "tick", "scheduled_time": SKEWED, "clusters": [], "correlation_id": "w"}
STATE = {"cluster": "c", "hours_overdue": 0}
EXPORT = {"scheduled_time": SKEWED}


def read_as_event(model: Any, message: dict[str, Any]) -> None:
    read_event(model, message, NOW)


def read_from_queue(message: dict[str, Any]) -> None:
    read_attribute_input(json.dumps(message), NOW)


def read_from_topic(message: dict[str, Any]) -> None:
    read_alert_input(json.dumps(message), NOW)


def read_from_topic_of_alerts(message: dict[str, Any]) -> None:
    if reasons := read_external_alerts(json.dumps(message), NOW).check(NOW).reasons:
        raise InvalidMessageError(reasons[0])


@pytest.mark.parametrize(
    ("read", "message", "field", "latest", "too_late"),
    [
        (partial(read_as_event, ScheduledTick), {}, "scheduled_time", SKEWED, "2026-11-19T10:20:01Z"),
        (partial(read_as_event, ScheduledTick), {}, "scheduled_time", SKEWED, "2030-01-01T00:00:00Z"),
        (partial(read_as_event, RecommendationsDue), {}, "scheduled_time", SKEWED, "2030-01-01T00:00:00Z"),
        (partial(read_as_event, ExportDue), {}, "scheduled_time", SKEWED, "2030-01-01T00:00:00Z"),
        (partial(read_as_event, ExportDue), EXPORT, "first_day", "2026-11-19T00:00:00Z", "2026-11-20T00:00:00Z"),
        (partial(read_as_event, ExportDue), {**EXPORT, "first_day": "2026-11-18T00:00:00Z"}, "days", 2, 3),
        (partial(read_as_event, PricesDue), {}, "months", ["2026-11"], ["2026-12"]),
        (read_from_queue, DUE, "first_hour", "2026-11-19T09:00:00Z", "2026-11-19T10:00:00Z"),
        (read_from_queue, {**DUE, "first_hour": "2026-11-19T07:00:00Z"}, "hours", 3, 4),
        (read_from_queue, RESTATE, "hours", 3, 4),
        (read_from_topic, PUBLISHED, "hour", "2026-11-19T09:00:00Z", "2030-01-01T00:00:00Z"),
        (read_from_topic, TICK, "scheduled_time", SKEWED, "2030-01-01T00:00:00Z"),
        (
            read_from_topic,
            TICK,
            "clusters",
            [{**STATE, "last_complete_hour": "2026-11-19T09:00:00Z"}],
            [{**STATE, "last_complete_hour": "2026-11-19T10:00:00Z"}],
        ),
        (
            read_from_topic_of_alerts,
            {"kind": "amp-alerts"},
            "alerts",
            [{"status": "firing", "startsAt": SKEWED}],
            [{"status": "firing", "startsAt": "2030-01-01T00:00:00Z"}],
        ),
    ],
)
def test_time_in_the_future_is_refused(
    read: Any, message: dict[str, Any], field: str, latest: Any, too_late: Any
) -> None:
    read({**message, field: latest})
    with pytest.raises(InvalidMessageError, match=r"must not be in the future|that have begun|that ha(s|ve) ended"):
        read({**message, field: too_late})
