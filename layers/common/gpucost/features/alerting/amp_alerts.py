"""What AMP's alerting rules say (minutes are not visible in hourly records), passed on like our own alerts.

Their state machine is Prometheus's: what arrives is firing or resolved already. Here each alert is told once, until it
is resolved, repeated like the others, and held by the same silences and quiet hours.
"""

from dataclasses import replace
from datetime import UTC

from gpucost.core.hours import floor_hour
from gpucost.features.alerting.model import FLEET_SCOPE, Alert, Notification, Severity, Subject
from gpucost.features.alerting.ports import AlertStates
from gpucost.features.alerting.scope_update import ScopeUpdate, notification_id
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.settings.rules import ExternalRule, RuleSettings
from gpucost.runtime.messages import ExternalAlert, ExternalAlerts

DEFAULT_NAME = "external"
LONGEST_DETAIL = 200


class AmpAlertEvaluation:
    """Takes alerts of AMP's alert manager into account.

    Args:
        memory: what alerting remembers.
    """

    def __init__(self, memory: AlertStates) -> None:
        self._memory = memory

    def evaluate(self, settings: AlertingSettings, message: ExternalAlerts) -> None:
        """Remember what fires, and put news in the outbox. Without a rule of kind external all receivers are told.

        Raises:
            ConflictError: others wrote first; deciding again is safe.
        """
        rules = fleet_rules(settings)
        own = {name: rule for name, rule in rules.items() if isinstance(rule, ExternalRule)}
        decisions = ScopeUpdate(self._memory.load(FLEET_SCOPE), settings.alerts, rules)
        for alert in message.alerts:
            for name, rule in own.items():
                subject = _subject(alert)
                if rule.covers(subject):
                    _step(decisions, name, rule, subject, alert)
        decisions.save_only(self._memory)


def fleet_rules(settings: AlertingSettings) -> dict[str, RuleSettings]:
    """The rules that are decided on ticks and on AMP's word; without one of kind external there is one for all."""
    kinds = {"budget", "spend-change", "data", "digest", "external"}
    found = {name: rule for name, rule in settings.alerts.named_rules().items() if rule.kind in kinds}
    if not any(isinstance(rule, ExternalRule) for rule in found.values()):
        found[DEFAULT_NAME] = ExternalRule(rule="external")
    return found


def _step(decisions: ScopeUpdate, name: str, rule: ExternalRule, subject: Subject, alert: ExternalAlert) -> None:
    known = next((one for one in decisions.alerts(name) if one.subject == subject), None)
    if alert.status == "resolved":
        if known is not None and known.since <= alert.starts_at.astimezone(UTC):
            decisions.notify(_news(name, rule, subject, alert, "resolved"))
            decisions.discard(known)
        return
    if known is None:
        news = _news(name, rule, subject, alert, "firing")
        started = alert.starts_at.astimezone(UTC)
        decisions.notify(news)
        decisions.add(Alert(name, subject, "firing", started, (), notified_at=floor_hour(started), notification=news))


def _news(name: str, rule: ExternalRule, subject: Subject, alert: ExternalAlert, event: str) -> Notification:
    started = alert.starts_at.astimezone(UTC)
    levels: dict[str, Severity] = {"info": "info", "warning": "warning", "critical": "critical"}
    news = Notification(
        id="",
        event="resolved" if event == "resolved" else "firing",
        kind="external",
        rule=name,
        severity=rule.severity or levels.get(alert.labels.get("severity", ""), rule.effective_severity),
        subject=subject,
        since=started,
        hour=floor_hour(started),
        threshold="",
        figures={},
        note=alert.annotations.get("summary") or alert.annotations.get("description", ""),
    )
    exact = f"{started:%M%S}{started.microsecond // 1000:03d}"
    return replace(news, id=f"{notification_id(name, subject, news.hour, news.event)}/{exact}")


def _subject(alert: ExternalAlert) -> Subject:
    """What an alert is about: its own labels where they are ours, the rest in words (annotations change)."""
    pool = "nodepool" if "nodepool" in alert.labels else "provisioner"
    own = {"business_unit", "cluster", "namespace", pool}
    rest = sorted((key, value) for key, value in alert.labels.items() if key not in {*own, "alertname", "severity"})
    what = [alert.labels.get("alertname", "alert"), *(f"{key}={value}" for key, value in rest)]
    return Subject(
        business_unit=alert.labels.get("business_unit", ""),
        cluster=alert.labels.get("cluster", ""),
        namespace=alert.labels.get("namespace", ""),
        node_pool=alert.labels.get(pool, ""),
        detail=" ".join(what)[:LONGEST_DETAIL],
    )
