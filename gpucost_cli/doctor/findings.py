"""Groups the findings of checks by their cause: one line to change, and all that it fixes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpucost_cli.doctor.checks import Check
from gpucost_cli.doctor.checks.model import Severity

_SEVERITIES: Sequence[Severity] = ("required", "recommended", "optional")


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause with the line to change, and what else this line fixes. A finding without a change is a note."""

    cause: Check
    same_change: Sequence[Check] = ()
    """Further problems that the same line fixes."""
    consequences: Sequence[Check] = ()
    """Problems that follow from the cause."""

    @property
    def severity(self) -> Severity:
        """The most severe one of all its problems."""
        checks = (self.cause, *self.same_change, *self.consequences)
        return min((check.severity for check in checks), key=_SEVERITIES.index)


def group_by_cause(checks: Iterable[Check]) -> list[Finding]:
    """Group checks by the line to change, or by the checks that explain them; the most severe findings come first."""
    roots: dict[str, str] = {}
    causes: dict[str, list[Check]] = {}
    consequences: dict[str, list[Check]] = {}
    for check in checks:
        if not check.finding:
            continue
        explained = next((roots[name] for name in check.explained_by if name in roots), None)
        line = explained or check.change or check.finding
        if check.change:
            roots.setdefault(check.name, line)
        (causes if explained is None else consequences).setdefault(line, []).append(check)
    findings = []
    for line, of_line in causes.items():
        first, *others = sorted(of_line, key=lambda check: _SEVERITIES.index(check.severity))
        findings.append(Finding(first, others, consequences.get(line, ())))
    return sorted(findings, key=lambda finding: (finding.cause.change is None, _SEVERITIES.index(finding.severity)))
