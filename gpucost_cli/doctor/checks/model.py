"""The input and the result of checks."""

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple

import yaml

from gpucost.core.metering.kubernetes_labels import NODE_LABELS, mig_replicas
from gpucost.core.pricing.prices import Price
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost_cli.doctor.facts import Facts, shared_mig_profiles
from gpucost_cli.doctor.labels import RequiredLabels, allow_list_flag, allow_lists
from gpucost_cli.doctor.queries import DoctorQueries
from gpucost_cli.doctor.setup import STACK, collectors_of
from gpucost_cli.doctor.signals import Signal
from gpucost_devstack.template import REPOSITORY

Status = Literal["found", "missing", "faulty", "not needed", "unknown"]
Severity = Literal["required", "recommended", "optional"]
_MAX_NAMES_LISTED = 3


@dataclass(frozen=True, slots=True)
class Check:
    """The status of something that attribution needs.

    Severity `required`: without it there are no figures (missing), or they are wrong (faulty). `recommended`: some
    figures are unknown or rough. `optional`: a detail.
    """

    name: str
    metric: str
    status: Status
    severity: Severity
    series: int | None = None
    """Number of series, at most at one time of the window; None if the check is not about series."""
    scrape_interval_seconds: Decimal | None = None
    finding: str | None = None
    change: str | None = None
    """The line of configuration to change."""
    effect: str | None = None
    """The finding in a few words, for the list of what follows from another check's finding."""
    explained_by: Sequence[str] = ()
    """Names of the checks whose findings are the cause of this one. `run_checks` leaves only those with a change."""


class Fault(NamedTuple):
    """A problem, and the line of configuration to change."""

    finding: str
    change: str
    effect: str | None = None
    """The finding in a few words."""
    explained_by: Sequence[str] = ()
    """Names of earlier checks that are the cause of this problem if they have one, too."""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The input of checks: one cluster's facts and settings."""

    facts: Facts
    cluster: ClusterSettings
    settings: CoreSettings
    required_labels: RequiredLabels
    ranks: Sequence[Sequence[Signal]]
    """Signals that attribution would read, best first."""
    settings_file: str = "settings.yaml"
    """The settings' path, for commands to paste."""
    prices: Sequence[Price] = ()
    """AWS's prices of nodes that nothing else prices, if AWS could be asked."""

    @property
    def label_change(self) -> str:
        """The flag of kube-state-metrics, or the chart's values, that export all labels that attribution reads."""
        profiles = sorted({profile for node in self.facts.nodes.values() for profile in shared_mig_profiles(node)})
        mig_labels = (mig_replicas(profile) for profile in profiles)
        node_labels = [*NODE_LABELS, *self.required_labels.of_nodes, *mig_labels]
        if STACK in collectors_of(self.facts.collector_labels):
            lists = json.dumps(allow_lists(self.required_labels, node_labels))
            return f"values of {STACK}: kube-state-metrics: {{metricLabelsAllowlist: {lists}}}"
        return f"kube-state-metrics: {allow_list_flag(self.required_labels, node_labels)}"

    def install_command(self, chart: str, namespace: str) -> str:
        """The command that renders the values of an exporter's chart and installs it.

        Args:
            chart: the name of the chart, its release and its rendered values.
            namespace: the namespace of the release.
        """
        key = chart.replace("-", "_")
        versions = yaml.safe_load((REPOSITORY / "cluster" / "versions.yaml").read_text(encoding="utf-8"))
        repository = versions["charts"][key]["repository"]
        parameters = shlex.quote(f"cluster: {self.cluster.name}")
        cluster = f" --params <(echo {parameters})" if len(self.settings.clusters) > 1 else ""
        settings = shlex.quote(self.settings_file)
        return (
            f"gpucost manifests render --for prometheus --settings {settings}{cluster} --out manifests && "
            f". manifests/env.sh && helm upgrade --install {chart} {chart} --repo {repository} "
            f'--version "${key.upper()}_VERSION" -n {namespace} --create-namespace -f manifests/helm/{chart}.yaml'
        )

    @property
    def status_without_need(self) -> Status:
        """The status of series that are missing, and that no object known to kube-state-metrics needs."""
        return "not needed" if self.facts.has_kube_state_metrics else "unknown"

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
        """Create a check's result for a metric.

        Args:
            name: the check's name.
            metric: the metric.
            severity: the check's severity.
            fault: the problem, if there is one.
            note: a finding that is no problem.
            status: by default `faulty` if there is a fault, else `found`.
            series: number of series; by default that of the metric.
        """
        facts = self.facts
        return Check(
            name=name,
            metric=metric,
            status=status or ("faulty" if fault else "found"),
            severity=severity,
            series=facts.series.get(metric) if series is None else series,
            scrape_interval_seconds=facts.scrape_interval_seconds(metric),
            finding=fault.finding if fault else note,
            change=fault.change if fault else None,
            effect=fault.effect if fault else None,
            explained_by=(*fault.explained_by, *([metric] if metric != name else [])) if fault else (),
        )


CheckFunction = Callable[[CheckContext], Iterable[Check]]
CheckQuery = Callable[[DoctorQueries, Facts], str]
Section = Literal["the cluster and its exporters", "kube-state-metrics", "the GPU exporter"]
"""A section of docs/reference/doctor.md, where it begins with *Findings:*."""


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """A check: what it reads, what it finds, and what the documentation says about that."""

    find: CheckFunction
    section: Section
    rows: str
    """Rows of docs/reference/doctor.md on its results: names, meaning and change. `…` stands for a metric or label."""
    metrics: Sequence[str]
    """Metrics of exporters, whose series are counted over the window (`Facts.series`)."""
    query: CheckQuery
    """A query of its own that counts series (`Facts.series`), by a metric that no other check counts, or by statistic.

    Empty if it is not needed.
    """

    def __call__(self, context: CheckContext) -> Iterable[Check]:
        """Return the results in a cluster."""
        return self.find(context)


def doctor_check(
    section: Section, rows: str = "", *, metrics: Sequence[str] = (), query: CheckQuery = lambda _queries, _facts: ""
) -> Callable[[CheckFunction], DoctorCheck]:
    """Make a check of a function, with the fields of `DoctorCheck`."""
    return lambda find: DoctorCheck(find, section, rows, metrics, query)


def first_few(names: Iterable[str]) -> str:
    """List the first few names, for a sentence."""
    distinct = sorted(set(names))
    remaining = len(distinct) - _MAX_NAMES_LISTED
    return ", ".join(distinct[:_MAX_NAMES_LISTED]) + (f" and {remaining} more" if remaining > 0 else "")
