"""External alerts: those of AMP's alerting rules, which `alert_service` forwards like other alerts."""

from typing import Literal

from gpucost.features.alerting.rule_kinds.base import AlertKind, Subject, TickRule


class ExternalRule(TickRule):
    """Forwards alerts of AMP's alerting rules: node pools and quotas near their limit, failed provisioning."""

    kind = "external"
    title = "Cluster alert"
    action = "See the cluster's dashboards. The figures of the next hours will show the cost."
    needs_sentence = True
    fires_when = "AMP's rules fire: node pools and quotas near their limit, failed provisioning"
    subjects = "as in its labels"
    severity_text = "as in its labels"
    example = """
    rule: external
    """

    rule: Literal["external"]
    """The kind of the rule."""

    def covers(self, subject: Subject) -> bool:
        """Whether the rule applies to a subject; an empty field of the subject does not match a scope that sets it."""
        scope = self.scope
        patterns_and_names = (
            (scope.business_units, subject.business_unit),
            (scope.clusters, subject.cluster),
            (scope.namespaces, subject.namespace),
            (scope.node_pools, subject.node_pool),
        )
        return super().covers(subject) and all(name or not patterns for patterns, name in patterns_and_names)


# The sample that `gpucost alerts test` sends to receivers. No rule has this kind.


class SampleAlert(AlertKind):
    """A message that tests a receiver."""

    kind = "sample"
    title = "Test alert"
    action = "No action is needed: this message tests the receiver."
    needs_sentence = True
