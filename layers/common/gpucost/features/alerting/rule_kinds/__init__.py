"""The kinds of alerts, each in a module of its own. `ALERT_KINDS` is the only list of them."""

from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import Field

from gpucost.features.alerting.rule_kinds.base import AlertKind, Rule
from gpucost.features.alerting.rule_kinds.budget import BudgetRule
from gpucost.features.alerting.rule_kinds.data import DataRule
from gpucost.features.alerting.rule_kinds.digest import DigestRule
from gpucost.features.alerting.rule_kinds.external import ExternalRule, SampleAlert
from gpucost.features.alerting.rule_kinds.idle_workload import IdleWorkloadRule
from gpucost.features.alerting.rule_kinds.spend_change import SpendChangeRule
from gpucost.features.alerting.rule_kinds.token_cost import TokenCostRule
from gpucost.features.alerting.rule_kinds.unallocated import UnallocatedRule
from gpucost.features.alerting.rule_kinds.waste import WasteRule

ALERT_KINDS: tuple[type[AlertKind], ...] = (
    WasteRule,
    IdleWorkloadRule,
    UnallocatedRule,
    TokenCostRule,
    BudgetRule,
    SpendChangeRule,
    DataRule,
    DigestRule,
    ExternalRule,
    SampleAlert,
)
"""In the order of the documentation."""
KINDS_BY_NAME = {kind.kind: kind for kind in ALERT_KINDS}
RULES = tuple(kind for kind in ALERT_KINDS if issubclass(kind, Rule))
"""The kinds that the settings can have rules of."""

if TYPE_CHECKING:
    RuleKind = str
    AlertRule = Rule
else:
    RuleKind = Literal[tuple(KINDS_BY_NAME)]
    """The name of a kind."""
    AlertRule = Annotated[Union[RULES], Field(discriminator="rule")]  # noqa: UP007 - of a tuple
    """A rule of any kind."""
