"""The alert function's job: on every closed hour decide which rules fire or resolve, and tell people exactly once.

What is decided is saved with its outbox, under a version condition, before anybody is told; what is delivered leaves
the outbox one by one. A crash anywhere thus loses nothing and repeats at most the one message it interrupted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gpucost.domain.alerting import AlertState, HourWaste, Notification, WasteThresholds, decide
from gpucost.domain.hours import HOUR
from gpucost.domain.ledger import HourSummary
from gpucost.domain.model import Costs, Line
from gpucost.domain.money import ZERO
from gpucost.errors import ConflictError, SettingsMissingError, SourceError
from gpucost.messages import HourClosed, Tick
from gpucost.observability import logger
from gpucost.ports import AlertStates, Clock, Notifiers, PublishedHours, SettingsStore
from gpucost.services.outbox import Outbox
from gpucost.settings import Settings, WasteRule

CURSOR = "*"
"""Rule name of the state that keeps how far a whole cluster is decided; its business unit is empty."""
OBSERVED_RUNGS = {"pod", "shared"}
TRIES = 8


def _now() -> datetime:
    return datetime.now(UTC)


class AlertService:
    """Decides and delivers.

    Args:
        settings_store: the settings document.
        ledger: hour summaries.
        alert_states: the memory of rules.
        receivers: who is told, by stable name.
        clock: the time now; only the leases on outboxes use it.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: PublishedHours,
        alert_states: AlertStates,
        receivers: Notifiers,
        clock: Clock = _now,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._states = alert_states
        self._receivers = receivers
        self._clock = clock

    def hour_closed(self, message: HourClosed) -> None:
        """Decide all rules of a cluster through an hour, then deliver what is in its outboxes.

        Raises:
            SourceError: a receiver could not be told; what it should hear waits in the outbox for a retry.
            ConflictError: others kept writing the same states; a retry decides anew.
        """
        if message.origin != "schedule":
            return
        settings = self._settings()
        if settings is None or settings.cluster(message.cluster) is None:
            return
        for _ in range(TRIES):
            try:
                self._decide(settings, message)
                break
            except ConflictError:
                logger.info("another hour of the cluster was decided meanwhile; deciding again")
        else:
            raise ConflictError(f"alert states of cluster {message.cluster!r} changed {TRIES} times while deciding")
        self._deliver(settings, [message.cluster])

    def tick(self, message: Tick) -> None:
        """Deliver what earlier attempts left in the outboxes.

        Raises:
            SourceError: a receiver could still not be told.
        """
        settings = self._settings()
        if settings is not None:
            self._deliver(settings, [state.cluster for state in message.clusters])

    def _settings(self) -> Settings | None:
        try:
            return self._settings_store.current().settings
        except SettingsMissingError:
            logger.info("no settings have been pushed yet: no alert rules, nothing to do")
            return None

    def _deliver(self, settings: Settings, clusters: Iterable[str]) -> None:
        outbox = Outbox(self._states, self._receivers(settings), self._clock)
        for cluster in clusters:
            outbox.deliver(cluster)
        if outbox.failures:
            raise SourceError("; ".join(f"{name} was not told: {why}" for name, why in outbox.failures.items()))

    def _decide(self, settings: Settings, message: HourClosed) -> None:
        states = {(state.rule, state.business_unit): state for state in self._states.load(message.cluster)}
        cursor = states.pop((CURSOR, ""), AlertState.fresh(CURSOR, message.cluster, ""))
        rules = rule_names(settings.alerts.rules)
        for key, state in list(states.items()):
            if state.rule not in rules and state.phase != "inactive":
                states[key] = self._states.save(replace(state, phase="inactive", since=None, breaches=0))
        if not rules:
            return
        start = _first_undecided(states.values(), cursor, message.hour, settings)
        if start > message.hour:
            return
        hours = [
            summary
            for summary in self._ledger.summaries(message.cluster, start, message.hour + HOUR)
            if summary.status != "incomplete" and summary.totals is not None
        ]
        if not hours:
            return
        spent = [(summary.hour, _by_business_unit(summary)) for summary in hours]
        receivers = sorted(self._receivers(settings))
        for name, rule in rules.items():
            units = {unit for _, costs in spent for unit in costs}
            units |= {state.business_unit for state in states.values() if state.rule == name and is_active(state)}
            for unit in sorted(units):
                before = states.get((name, unit), AlertState.fresh(name, message.cluster, unit))
                if not is_active(before):
                    before = replace(before, decided_through=_later(before.decided_through, cursor.decided_through))
                thresholds = thresholds_of(rule, unit)
                seen = [
                    self._seen(settings, message.cluster, hour, unit, costs.get(unit, Costs()), thresholds)
                    for hour, costs in spent
                    if (before.decided_through is None or hour > before.decided_through)
                    and not costs.get(unit, Costs()).unpriced_gpu_hours
                ]
                after, told = decide(before, seen, thresholds)
                if told or is_active(after) or is_active(before):
                    self._save(before, after, told, receivers)
        newest = _later(cursor.decided_through, spent[-1][0])
        if newest != cursor.decided_through:
            self._states.save(replace(cursor, decided_through=newest))

    def _save(
        self, before: AlertState, after: AlertState, told: Sequence[Notification], receivers: Sequence[str]
    ) -> None:
        for notification in told:
            logger.info("an alert changed", notification=notification.id)
        entries = tuple((receiver, notification) for notification in told for receiver in receivers)
        after = replace(after, outbox=(*after.outbox, *entries))
        if after != before:
            self._states.save(after)

    def _seen(
        self,
        settings: Settings,
        cluster: str,
        hour: datetime,
        unit: str,
        costs: Costs,
        thresholds: WasteThresholds,
    ) -> HourWaste:
        """An hour's waste; where settings allow guessed utilization, only what was observed counts (design §3)."""
        seen = HourWaste(hour, costs.allocated_usd, costs.waste_usd)
        if set(settings.utilization.ladder) <= OBSERVED_RUNGS or not thresholds.breached_by(seen):
            return seen
        lines = self._ledger.lines(cluster, hour, unit)
        return HourWaste(
            hour,
            sum((line.allocated_usd or ZERO for line in lines), ZERO),
            sum((line.waste_usd or ZERO for line in lines if _is_observed(line)), ZERO),
        )


def rule_names(rules: Iterable[WasteRule]) -> dict[str, WasteRule]:
    """Rules by a name that survives changed thresholds: `waste`, `waste-2`, … in the order of the settings."""
    return {rule.rule if number == 1 else f"{rule.rule}-{number}": rule for number, rule in enumerate(rules, start=1)}


def thresholds_of(rule: WasteRule, business_unit: str) -> WasteThresholds:
    """What a rule asks of one unit."""
    own = rule.for_unit(business_unit)
    return WasteThresholds(own.waste_usd_per_hour, own.waste_percent, own.for_hours)


def is_active(state: AlertState) -> bool:
    """Whether a run of breaching hours is under way."""
    return state.phase != "inactive"


def _first_undecided(
    states: Iterable[AlertState], cursor: AlertState, newest: datetime, settings: Settings
) -> datetime:
    """The oldest hour that may still matter: what a lost or reordered message left out is made up for here."""
    longest = max(
        max(rule.for_hours, *(override.for_hours or 1 for override in rule.overrides), 1)
        for rule in settings.alerts.rules
    )
    if cursor.decided_through is None:
        start = newest - HOUR * (longest - 1)
    else:
        decided = [cursor.decided_through]
        decided += [state.decided_through for state in states if is_active(state) and state.decided_through]
        start = min(decided) + HOUR
    return max(start, newest + HOUR - timedelta(hours=settings.lookback_hours))


def _by_business_unit(summary: HourSummary) -> Mapping[str, Costs]:
    groups: dict[str, list[Costs]] = {}
    for (unit, _), costs in summary.groups.items():
        groups.setdefault(unit, []).append(costs)
    return {unit: Costs.total(parts) for unit, parts in groups.items()}


def _is_observed(line: Line) -> bool:
    """Waste of a line without a signal is its start-up, which was seen; that of the guessing rungs is a guess."""
    return line.utilization_source not in {"node", "cluster"}


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)
