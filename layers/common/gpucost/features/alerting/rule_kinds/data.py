"""Data: figures that are missing or not reliable, and problems of the service itself."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from gpucost.core.hours import HOUR
from gpucost.features.alerting.formatting import FigureFormatter
from gpucost.features.alerting.rule_kinds.base import Figure, Finding, Subject, TickRule
from gpucost.settings.section import BOUNDED_DIGITS

if TYPE_CHECKING:
    from gpucost.core.ledger import Manifest
    from gpucost.features.alerting.model import Alert
    from gpucost.features.alerting.tick_figures import TickFigures

AGE_CHECKED_PRICE_SOURCES = ("spot",)
DATA_CHECK_PERIOD = timedelta(hours=6)
_PROBLEMS = {
    "overdue": "hours are missing or incomplete",
    "suspect-samples": "samples are contradictory or impossible, and no business unit is charged for them",
    "coverage": "too few scrapes arrived",
    "prices": "prices are out of date",
    "dead-letters": "messages that could not be processed are in the dead-letter queue",
    "settings": "the newest settings cannot be read, and the previous ones stay in force",
}
"""By the detail of an alert."""


class DataRule(TickRule):
    """Fires when figures are missing or not reliable, or when the service itself has problems."""

    kind = "data"
    default_severity = "critical"
    title = "GPU cost data alert"
    action = "See docs/how-to/runbook.md: figures of these hours are missing or not reliable."
    figures = (
        Figure("Hours", "hours"),
        Figure("Coverage", "coverage_percent"),
        Figure("Age in hours", "age_hours"),
        Figure("Messages", "count"),
        Figure("Suspect samples", "notes"),
    )
    needs_sentence = True
    details_of_missing_data = frozenset({"overdue"})
    fires_when = (
        "any of these is true: `overdue_hours` hours are late; the newest hour is below `coverage`; spot prices are "
        "older than `price_age_hours`; the dead-letter queue has messages (`dead_letters`); newer settings are "
        "invalid (`invalid_settings`); an hour published since the previous tick has "
        "[implausible samples](../explanation/cost-model.md#implausible-samples) (`suspect_samples`)"
    )
    subjects = "a cluster, or the service"
    example = """
    rule: data
    overdue_hours: 3
    coverage: 0.5
    """

    rule: Literal["data"]
    """The kind of the rule."""
    overdue_hours: Annotated[int, Field(ge=1, le=720)] | None = 2
    """Fires when at least this many hours of a cluster are missing or incomplete."""
    coverage: Annotated[Decimal, Field(gt=0, le=1), BOUNDED_DIGITS] | None = None
    """Fires when the newest published hour has less coverage."""
    price_age_hours: Annotated[int, Field(ge=1, le=8760)] | None = None
    """Fires when the newest fetched price is at least this old."""
    dead_letters: bool = True
    """Fires when there are messages in the dead-letter queue."""
    invalid_settings: bool = True
    """Fires when the newest settings document cannot be read, so that an older one is in force."""
    suspect_samples: bool = True
    """Fires when an hour published since the previous tick has samples that are contradictory or impossible."""

    @classmethod
    def predicate(cls, figures: FigureFormatter, detail: str, *, is_resolved: bool) -> str:
        """Return what the sentence of a notification says about its subject."""
        return super().predicate(figures, _PROBLEMS.get(detail, detail), is_resolved=is_resolved)

    @classmethod
    def page_view(cls, subject: Subject) -> tuple[str, Mapping[str, str]]:
        """Return the page's view of the state of the data."""
        return "health", {}

    def findings(self, tick: "TickFigures", active_alerts: "Sequence[Alert]") -> Iterator[Finding]:
        """Evaluate the state of every cluster, and of the service."""
        for cluster in tick.clusters:
            if self.scope.has_cluster(cluster.cluster):
                yield from self._cluster_findings(tick, cluster.cluster, cluster.hours_overdue)
        yield from self._price_findings(tick)
        if self.dead_letters:
            count = tick.inputs.count_dead_letters()
            has_messages = None if count is None else count > 0
            figures = {"count": None if count is None else Decimal(count)}
            yield self._finding(tick, "", "dead-letters", has_messages, "any message in the dead-letter queue", figures)
        if self.invalid_settings:
            refused = tick.stored_settings.refused
            note = " ".join(refused)
            yield self._finding(tick, "", "settings", bool(refused), "settings that cannot be read", {}, note)

    def _cluster_findings(self, tick: "TickFigures", cluster: str, overdue: int) -> Iterator[Finding]:
        if self.overdue_hours is not None:
            threshold, figures = f"≥ {self.overdue_hours} hours overdue", {"hours": Decimal(overdue)}
            yield self._finding(tick, cluster, "overdue", overdue >= self.overdue_hours, threshold, {**figures})
        if self.coverage is None and not self.suspect_samples:
            return
        manifests = tick.inputs.ledger.manifests(cluster, tick.at - DATA_CHECK_PERIOD, tick.at)
        published = [manifest for manifest in manifests if manifest.coverage]
        if self.coverage is not None:
            newest = published[-1].coverage if published else None
            coverage = None if newest is None else newest.allocation
            percent = None if coverage is None else (coverage * 100).quantize(Decimal("0.1"))
            is_low = None if coverage is None else coverage < self.coverage
            threshold = f"coverage < {self.coverage * 100:f}%"
            yield self._finding(tick, cluster, "coverage", is_low, threshold, {"coverage_percent": percent})
        if self.suspect_samples:
            count, note = self._count_suspect_samples(tick, published)
            has_suspects = None if count is None else count > 0
            threshold = "samples that contradict each other or are impossible"
            notes = {"notes": None if count is None else Decimal(count)}
            yield self._finding(tick, cluster, "suspect-samples", has_suspects, threshold, notes, note)

    @staticmethod
    def _count_suspect_samples(tick: "TickFigures", published: "Sequence[Manifest]") -> tuple[int | None, str]:
        """Count the notes about suspect samples, and return the first of them.

        The count covers the hours published since the previous tick, or the newest hour if there are none. It is None
        if nothing was published recently.
        """
        from gpucost.core.metering.implausible_samples import SUSPECT_PREFIX

        newest = [manifest for manifest in published if manifest.published_at > tick.at - HOUR] or published[-1:]
        if not newest:
            return None, ""
        notes = tick.inputs.ledger.notes_of(newest)
        suspect = [note for hour in sorted(notes) for note in notes[hour] if note.startswith(SUSPECT_PREFIX)]
        return len(suspect), suspect[0] if suspect else ""

    def _price_findings(self, tick: "TickFigures") -> Iterator[Finding]:
        pricing, read_spot_fetch_time = tick.settings.pricing, tick.inputs.read_spot_fetch_time
        is_checked = any(source in pricing.ordered_sources for source in AGE_CHECKED_PRICE_SOURCES)
        if self.price_age_hours is None or read_spot_fetch_time is None or not is_checked:
            return
        newest = read_spot_fetch_time()
        age = None if newest is None else Decimal((tick.at - newest) // HOUR)
        # With automatic sources, a deployment need not fetch spot prices.
        is_too_old = not pricing.is_automatic if age is None else age >= self.price_age_hours
        threshold = f"newest price ≥ {self.price_age_hours} hours old"
        yield self._finding(tick, "", "prices", is_too_old, threshold, {"age_hours": age})

    def _finding(
        self,
        tick: "TickFigures",
        cluster: str,
        detail: str,
        is_breach: bool | None,
        threshold: str,
        figures: dict[str, Decimal | None],
        note: str = "",
    ) -> Finding:
        """Make a finding of a cluster, or of the service if `cluster` is empty."""
        subject = Subject(cluster, detail=detail)
        return Finding(subject, tick.at, is_breach, threshold, figures, tick.currency, self.firing_policy, note=note)
