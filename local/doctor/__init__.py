"""`gpucost doctor`: what each cluster's Prometheus holds, what is missing for attribution, and what to change.

`asking` asks for facts, `checks` conclude from them, `render` prints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpucost.adapters.prometheus.connecting import connect
from gpucost.adapters.prometheus.sources import Sources
from gpucost.errors import GpuCostError
from gpucost.settings import ClusterSettings, Settings
from local.doctor import labels, signals
from local.doctor.asking import Asking
from local.doctor.checks import Case, Check, conclude
from local.doctor.utilization import Rung, rungs


@dataclass(frozen=True, slots=True)
class Report:
    """One cluster, examined."""

    cluster: str
    checks: Sequence[Check]
    utilization: Sequence[Rung]

    @property
    def possible(self) -> bool:
        """Whether its hours can be attributed at all."""
        return not any(check.forbids for check in self.checks)

    @property
    def obstacle(self) -> str:
        """Why not: the first reason."""
        return next((check.finding or f"{check.metric} is missing" for check in self.checks if check.forbids), "")


def examine(cluster: ClusterSettings, settings: Settings, now: datetime) -> Report:
    """Ask one cluster's Prometheus and conclude; a Prometheus that does not answer is a finding."""
    utilization = settings.utilization
    need, ranks = labels.needs(settings), signals.ranked(utilization.signal, utilization.scale)
    try:
        facts = Asking(connect(cluster), cluster.selector, need, ranks, Sources.of(cluster.sources)).facts(now)
    except (ValueError, ArithmeticError) as error:
        said = f"cluster {cluster.name}: Prometheus at {cluster.prometheus.url} answered something unusable: {error}"
        return Report(cluster.name, [_away(cluster, said)], [])
    except GpuCostError as error:
        return Report(cluster.name, [_away(cluster, str(error))], [])
    case = Case(facts, cluster, settings, need, ranks)
    return Report(cluster.name, [_answers(), *conclude(case)], rungs(case))


def _answers() -> Check:
    return Check("Prometheus", "", "found", "required")


def _away(cluster: ClusterSettings, said: str) -> Check:
    return Check(
        "Prometheus", "", "missing", "required", finding=said,
        change=f"settings, cluster {cluster.name}: prometheus: {{url: …, auth: none|sigv4|bearer}}, as far as it is "
        "they that are wrong",
    )  # fmt: skip
