"""The environment in which the faults of the table run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.chaos.crash import Baseline, FaultReport, compare, figures
from tests.chaos.simulated_deployment import Endpoints, SimulatedDeployment


@dataclass
class Bench:
    """Real services, and the report to which faults add their findings."""

    endpoints: Endpoints
    start: datetime
    prometheus: str
    """URL of a real Prometheus with samples from `first_seen` on."""
    first_seen: datetime
    report: FaultReport = field(default_factory=FaultReport)

    @contextmanager
    def deployment(self, **parameters: Any) -> Iterator[SimulatedDeployment]:
        """A separate deployment."""
        deployment = SimulatedDeployment(self.endpoints, parameters.pop("first", self.start), **parameters)
        try:
            yield deployment
        finally:
            deployment.close()

    def expect(
        self,
        fault: str,
        disturbed: SimulatedDeployment,
        undisturbed: SimulatedDeployment,
        state_of: Callable[[SimulatedDeployment], dict[str, Any]] = SimulatedDeployment.visible_state,
    ) -> None:
        """Compare a disturbed run with an undisturbed one."""
        expected = Baseline(
            undisturbed.save(), (), state_of(undisturbed), {*undisturbed.messages()}, undisturbed.notifications()
        )
        compare(self.report, fault, disturbed, expected, state_of=state_of)

    def expect_figures(self, fault: str, disturbed: SimulatedDeployment, undisturbed: SimulatedDeployment) -> None:
        """Compare figures only. In another order of hours, versions and messages may legitimately differ."""
        self.report.tried += 1
        expected, actual = figures(undisturbed.visible_state()), figures(disturbed.visible_state())
        self.report.lost += [f"{fault}: {name}" for name in expected.keys() - actual.keys()]
        self.report.doubled += [f"{fault}: {name}" for name in actual if actual[name] != expected.get(name)]
        received = {(cluster, hour) for cluster, hour, _ in disturbed.messages()}
        self.report.missing_messages += [
            f"{fault}: {message[:2]}" for message in undisturbed.messages() if message[:2] not in received
        ]
        self.report.dead += [f"{fault}: {message}" for message in disturbed.dead]

    def check(self, claim: str, *, holds: bool) -> None:
        """Check a claim about a fault."""
        self.report.tried += 1
        if not holds:
            self.report.lost.append(claim)


FaultCase = Callable[[Bench], None]
"""A row of the fault table."""
