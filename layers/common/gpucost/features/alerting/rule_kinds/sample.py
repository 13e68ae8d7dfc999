"""The sample that `gpucost alerts test` sends to receivers. No rule has this kind."""

from gpucost.features.alerting.rule_kinds.base import AlertKind


class SampleAlert(AlertKind):
    """A message that tests a receiver."""

    kind = "sample"
    title = "Test alert"
    action = "No action is needed: this message tests the receiver."
    needs_sentence = True
