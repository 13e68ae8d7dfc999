"""A check's result, and what checks conclude from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple

from gpucost.core.metering.kubernetes_labels import NODE_LABELS, mig_replicas
from gpucost.settings import ClusterSettings, Settings
from gpucost_cli.doctor.facts import Facts, shared_mig_profiles
from gpucost_cli.doctor.labels import RequiredLabels, allow_list_flag
from gpucost_cli.doctor.signals import Signal

Status = Literal["found", "missing", "faulty", "not needed"]
Severity = Literal["required", "recommended", "optional"]
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that attribution needs, and how it stands with it.

    Severity says what it is for: `required`, without it there are no figures (missing) or wrong ones (faulty);
    `recommended`, part of the figures is unknown or rough; `optional`, a detail.
    """

    name: str
    metric: str
    status: Status
    severity: Severity
    series: int | None = None
    """At most at one time of the window; None where it is no question of series."""
    scrape_interval_seconds: Decimal | None = None
    finding: str | None = None
    change: str | None = None
    """The line to change."""


class Fault(NamedTuple):
    """What is wrong, and the line to change."""

    finding: str
    change: str


@dataclass(frozen=True, slots=True)
class CheckContext:
    """One cluster's facts, and what its settings ask for."""

    facts: Facts
    cluster: ClusterSettings
    settings: Settings
    required_labels: RequiredLabels
    ranks: Sequence[Sequence[Signal]]
    """Signals that attribution would read, best first."""

    @property
    def allow_list(self) -> str:
        """kube-state-metrics' flag that exports every label that is read in this cluster."""
        profiles = sorted({one for node in self.facts.nodes.values() for one in shared_mig_profiles(node)})
        return allow_list_flag(self.required_labels, [*NODE_LABELS, *(mig_replicas(profile) for profile in profiles)])

    def check(
        self,
        name: str,
        metric: str,
        severity: Severity,
        fault: Fault | None = None,
        *,
        note: str | None = None,
        status: Status | None = None,
        series: int | None = None,
    ) -> Check:
        """A result about a metric: faulty where there is a fault, unless told otherwise.

        Args:
            name: of the check.
            metric: that it is about.
            severity: of the check.
            fault: what is wrong.
            note: what is worth knowing where nothing is wrong.
            status: `missing` or `not needed`.
            series: how many; those of the metric where not told.
        """
        facts = self.facts
        return Check(
            name=name,
            metric=metric,
            status=status or ("faulty" if fault else "found"),
            severity=severity,
            series=facts.series.get(metric) if series is None else series,
            scrape_interval_seconds=facts.interval(metric),
            finding=fault.finding if fault else note,
            change=fault.change if fault else None,
        )


CheckFunction = Callable[[CheckContext], Iterable[Check]]


def first_few(names: Iterable[str]) -> str:
    """The first few of some names, for a sentence."""
    distinct = sorted(set(names))
    more = len(distinct) - _SHOWN
    return ", ".join(distinct[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
