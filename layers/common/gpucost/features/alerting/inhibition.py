"""What has to wait at a moment, from the settings, the silences and what is known to be missing."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from gpucost.features.alerting.model import AlertGroup
from gpucost.features.alerting.settings import AlertingSettings, AlertSettings
from gpucost.features.alerting.settings.rules import DataRule, RuleSettings
from gpucost.features.alerting.muting import Muting, QuietHours, Silence
from gpucost.runtime.observability import logger

MISSING_DATA_DETAILS = frozenset({"overdue"})
"""Details of a data alert that say a cluster's hours are missing."""


def current_muting(settings: AlertingSettings, silences: Sequence[Silence], books: Iterable[AlertGroup], now: datetime) -> Muting:
    """What has to wait now."""
    rules = settings.alerts.named_rules()
    quiet = {name: hours for name, rule in rules.items() if (hours := _quiet(settings.alerts, rule)) is not None}
    data = {name for name, rule in rules.items() if isinstance(rule, DataRule)}
    missing = {
        alert.subject.cluster
        for book in books
        for alert in book.alerts
        if alert.rule in data and alert.phase == "firing" and alert.subject.detail in MISSING_DATA_DETAILS
    }
    active = [silence for silence in silences if silence.is_active(now)]
    return Muting(now, quiet, active, frozenset(missing))


def time_zone_of(alerts: AlertSettings, rule: RuleSettings) -> tzinfo:
    """A rule's time zone; UTC where this machine does not know it."""
    name = rule.time_zone or alerts.time_zone
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        logger.warning("a time zone is not known here; UTC is taken", time_zone=name)
        return UTC


def _quiet(alerts: AlertSettings, rule: RuleSettings) -> QuietHours | None:
    own = rule.quiet_hours or alerts.quiet_hours
    if own is None:
        return None
    return QuietHours(*own.times(), time_zone_of(alerts, rule), own.weekends)
