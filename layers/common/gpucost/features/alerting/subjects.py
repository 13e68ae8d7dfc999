"""Kinds of alert rules, severities, scopes and subjects: what the settings and the records of alerting share.

They are not in `model`, so that settings do not import the records.
"""

from typing import Literal, NamedTuple

RuleKind = Literal[
    "waste",
    "idle-workload",
    "unallocated",
    "token-cost",
    "budget",
    "spend-change",
    "data",
    "digest",
    "external",
    "sample",
]
TokenKind = Literal["blended", "prompt", "generated"]
"""The tokens whose unit cost a token-cost rule limits; blended: prompt and generated tokens together."""
Severity = Literal["info", "warning", "critical"]

FLEET_SCOPE = "*"
"""The scope of rules that are evaluated on the schedule, over all clusters. No cluster can have this name."""
CROSS_CLUSTER_WASTE_SCOPE = "*hours"
"""The scope of waste rules over several clusters. No cluster can have this name."""


class Subject(NamedTuple):
    """What an alert is about. Fields that a rule does not use are empty."""

    cluster: str = ""
    """Empty for all clusters together."""
    business_unit: str = ""
    namespace: str = ""
    workload_kind: str = ""
    workload: str = ""
    node_pool: str = ""
    detail: str = ""
    """Distinguishes alerts of one rule on the same subject: `2026-11 spent 80`, `coverage`, the name of a model."""
