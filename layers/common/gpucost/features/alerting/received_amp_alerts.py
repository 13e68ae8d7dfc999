"""Alerts of AMP's alerting rules, forwarded like other alerts. They catch what is not visible in hourly records.

Their state machine is Prometheus's: a received alert is already firing or resolved. Each alert causes one notification
until it is resolved. Repetitions, silences and quiet hours apply as to other alerts.
"""

from datetime import UTC

from gpucost.core.hours import floor_hour
from gpucost.features.alerting.findings import FLEET_SCOPE, Severity, Subject
from gpucost.features.alerting.model import Alert, Notification, NotificationEvent, notification_id
from gpucost.features.alerting.ports import AlertStateStore
from gpucost.features.alerting.rule_kinds.external import ExternalRule
from gpucost.features.alerting.scope_update import MAX_NOTE_LENGTH, ScopeUpdate
from gpucost.features.alerting.settings import SettingsWithAlerts, rules_of_scope
from gpucost.runtime.messages import ExternalAlert, ExternalAlerts

AlertKey = tuple[str, Subject]
MAX_DETAIL_LENGTH = 200
MAX_FIRING_ALERTS = 2_000
"""Alerts of AMP that are stored at the same time. A group of 20,000 alerts could not be written any more."""


class AmpAlertHandler:
    """Applies alerts that AMP's alert manager sent.

    Args:
        state_store: stored alert states.
    """

    def __init__(self, state_store: AlertStateStore) -> None:
        self._state_store = state_store

    def handle(self, settings: SettingsWithAlerts, message: ExternalAlerts) -> list[ExternalAlert]:
        """Store which alerts fire, and notify changes: all receivers if there is no rule of kind `external`.

        Returns:
            The alerts that are too many.

        Raises:
            ConflictError: another writer was first; evaluating again is safe.
        """
        rules = rules_of_scope(settings, FLEET_SCOPE)
        external_rules = {name: rule for name, rule in rules.items() if isinstance(rule, ExternalRule)}
        update = ScopeUpdate(self._state_store.load(FLEET_SCOPE), settings.alerts, rules)
        active = {alert.key: alert for name in external_rules for alert in update.alerts_of_rule(name)}
        excess: list[ExternalAlert] = []
        for alert in message.alerts:
            subject = _subject_from_labels(alert)
            for name, rule in external_rules.items():
                if not rule.covers(subject):
                    continue
                if alert.status == "resolved":
                    _resolve(update, rule, active, (name, subject), alert)
                elif len(active) < MAX_FIRING_ALERTS:
                    _fire(update, rule, active, (name, subject), alert)
                elif (name, subject) not in active:
                    excess.append(alert)
        update.save(self._state_store)
        return excess


def _fire(
    update: ScopeUpdate, rule: ExternalRule, active: dict[AlertKey, Alert], key: AlertKey, alert: ExternalAlert
) -> None:
    if key in active:
        return
    rule_name, subject = key
    started_at = alert.starts_at.astimezone(UTC)
    notification = _notification(rule_name, rule, subject, alert, "firing")
    update.add_notification(notification)
    active[key] = Alert(
        rule_name, subject, "firing", started_at, (), notified_at=floor_hour(started_at), notification=notification
    )
    update.add_external_alert(active[key])


def _resolve(
    update: ScopeUpdate, rule: ExternalRule, active: dict[AlertKey, Alert], key: AlertKey, alert: ExternalAlert
) -> None:
    stored = active.get(key)
    if stored is not None and stored.since <= alert.starts_at:
        update.add_notification(_notification(key[0], rule, key[1], alert, "resolved"))
        update.discard_alert(active.pop(key))


def _notification(
    rule_name: str, rule: ExternalRule, subject: Subject, alert: ExternalAlert, event: NotificationEvent
) -> Notification:
    started_at = alert.starts_at.astimezone(UTC)
    severities: dict[str, Severity] = {"info": "info", "warning": "warning", "critical": "critical"}
    label = severities.get(alert.labels.get("severity", ""), rule.effective_severity)
    hour = floor_hour(started_at)
    # A rule can fire several times within an hour: the id needs the exact time.
    suffix = f"{started_at:%M%S}{started_at.microsecond // 1000:03d}"
    return Notification(
        id=f"{notification_id(rule_name, subject, hour, event)}/{suffix}",
        event=event,
        rule_kind=rule.kind,
        rule=rule_name,
        severity=rule.severity or label,
        subject=subject,
        since=started_at,
        hour=hour,
        threshold="",
        figures={},
        note=(alert.annotations.get("summary") or alert.annotations.get("description", ""))[:MAX_NOTE_LENGTH],
    )


def _subject_from_labels(alert: ExternalAlert) -> Subject:
    """Map an alert's labels to a subject. Labels without a field go into the detail; annotations may change."""
    pool_label = "nodepool" if "nodepool" in alert.labels else "provisioner"
    mapped = {"business_unit", "cluster", "namespace", pool_label}
    other_labels = sorted(
        (name, label) for name, label in alert.labels.items() if name not in {*mapped, "alertname", "severity"}
    )
    detail = [alert.labels.get("alertname", "alert"), *(f"{name}={label}" for name, label in other_labels)]
    return Subject(
        business_unit=alert.labels.get("business_unit", ""),
        cluster=alert.labels.get("cluster", ""),
        namespace=alert.labels.get("namespace", ""),
        node_pool=alert.labels.get(pool_label, ""),
        detail=" ".join(detail)[:MAX_DETAIL_LENGTH],
    )
