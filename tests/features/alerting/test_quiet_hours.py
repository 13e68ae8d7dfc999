"""Quiet hours in local time: across midnight, on weekends, and on days of 23 and 25 hours."""

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest

from gpucost.features.alerting.muting import QuietHours

NIGHT = QuietHours(time(22), time(7), ZoneInfo("Europe/Berlin"))
EARLY = QuietHours(time(1, 30), time(2, 30), ZoneInfo("Europe/Berlin"))
OFFICE = QuietHours(time(9), time(17), ZoneInfo("America/New_York"), weekends=True)


@pytest.mark.parametrize(
    ("quiet", "moment", "expected"),
    [
        # Winter: Berlin is UTC+1; the night before the clocks go forward (29 March 2026, 02:00 becomes 03:00).
        (NIGHT, "2026-03-28T20:59", False),
        (NIGHT, "2026-03-28T21:00", True),
        (NIGHT, "2026-03-29T04:59", True),  # 06:59 in summer time already
        (NIGHT, "2026-03-29T05:00", False),
        (NIGHT, "2026-03-29T19:59", False),
        (NIGHT, "2026-03-29T20:00", True),
        # 02:00 to 03:00 does not exist that night: it is quiet from 01:30 until the clocks change.
        (EARLY, "2026-03-29T00:29", False),
        (EARLY, "2026-03-29T00:30", True),
        (EARLY, "2026-03-29T00:59", True),
        (EARLY, "2026-03-29T01:00", False),
        # 02:00 to 03:00 exists twice on 25 October 2026 (03:00 becomes 02:00): it is quiet both times.
        (EARLY, "2026-10-24T23:30", True),
        (EARLY, "2026-10-25T00:29", True),
        (EARLY, "2026-10-25T00:30", False),
        (EARLY, "2026-10-25T01:00", True),
        (EARLY, "2026-10-25T01:29", True),
        (EARLY, "2026-10-25T01:30", False),
        # Weekends are those of the zone: Friday 20 November ends in New York at 05:00 UTC.
        (OFFICE, "2026-11-20T14:00", True),
        (OFFICE, "2026-11-20T22:00", False),
        (OFFICE, "2026-11-21T04:59", False),
        (OFFICE, "2026-11-21T05:00", True),
        (OFFICE, "2026-11-23T04:59", True),
        (OFFICE, "2026-11-23T05:00", False),
    ],
)
def test_quiet_hours_use_local_time(quiet: QuietHours, moment: str, *, expected: bool) -> None:
    assert quiet.contains(datetime.fromisoformat(moment).replace(tzinfo=UTC)) is expected
