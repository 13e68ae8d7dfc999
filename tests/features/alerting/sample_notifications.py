"""Notifications of every kind for tests of notifiers."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gpucost.features.alerting.model import Notification, NotificationEvent
from gpucost.features.alerting.rule_kinds import RuleKind
from gpucost.features.alerting.rule_kinds.base import Subject, WastefulWorkload

HOUR_10 = datetime(2026, 11, 19, 10, tzinfo=UTC)
FIGURES: dict[RuleKind, dict[str, Decimal | None]] = {
    "waste": {
        "waste_usd_per_hour": Decimal("1234.565000000001"),
        "allocated_usd_per_hour": Decimal(1500),
        "waste_percent": Decimal("82.3"),
    },
    "idle-workload": {"gpus": Decimal(8), "utilization_percent": Decimal("0.3"), "waste_usd_per_hour": Decimal("95.7")},
    "unallocated": {"unallocated_usd_per_hour": Decimal(48), "unallocated_gpus": Decimal(4), "nodes": Decimal(2)},
    "token-cost": {
        "usd_per_million_generated_tokens": Decimal("4.1234567"),
        "usd_per_million_generated_tokens_at_full_use": Decimal("0.0042"),
        "prompt_tokens": Decimal(12_000_000),
        "generated_tokens": Decimal(1_500_000),
        "allocated_usd": Decimal(96),
        "budget_usd_per_million_tokens": Decimal(3),
    },
    "budget": {
        "spent_usd": Decimal(8200),
        "spent_percent": Decimal("82.0"),
        "projected_usd": None,
        "projected_percent": None,
        "budget_usd": Decimal(10000),
    },
    "spend-change": {
        "today_usd": Decimal(900),
        "usual_usd": Decimal(300),
        "change_percent": Decimal("200.0"),
        "weeks": Decimal(4),
        "by_gpu_hours": Decimal(0),
    },
    "data": {"hours": Decimal(3)},
    "digest": {
        "allocated_usd": Decimal(7000),
        "waste_usd": Decimal(3500),
        "waste_percent": Decimal("50.0"),
        "previous_usd": Decimal(5000),
        "hours_unknown": Decimal(1),
    },
    "external": {},
    "sample": {},
}
SUBJECTS: dict[RuleKind, Subject] = {
    "waste": Subject("demo", "research"),
    "idle-workload": Subject("demo", "research", "training", "Job", "llm-7b"),
    "unallocated": Subject("demo", node_pool="gpu-general"),
    "token-cost": Subject("demo", "research", detail="meta-llama/Llama-3.1-8B-Instruct"),
    "budget": Subject(business_unit="research", detail="2026-11 spent 80%"),
    "spend-change": Subject(business_unit="research"),
    "data": Subject("demo", detail="overdue"),
    "digest": Subject(business_unit="research"),
    "external": Subject("demo", node_pool="gpu-general", detail="GPUNodePoolNearLimit"),
    "sample": Subject("demo", "research", detail="sent by alice"),
}
TOP_WASTERS = (
    WastefulWorkload("training", "Job", "llm-7b", Decimal(8), Decimal("90.5")),
    WastefulWorkload("notebooks", "StatefulSet", "notebook", Decimal(2), Decimal("23.9")),
)


def notification(kind: RuleKind = "waste", event: NotificationEvent = "firing", **changes: Any) -> Notification:
    """Make a notification of an alert that is two hours old."""
    fields: dict[str, Any] = {
        "id": f"demo/{kind}/research/2026-11-19T10:00:00Z/{event}",
        "event": event,
        "rule_kind": kind,
        "rule": kind,
        "severity": "warning",
        "subject": SUBJECTS[kind],
        "since": datetime(2026, 11, 19, 9, tzinfo=UTC),
        "hour": HOUR_10,
        "threshold": "waste ≥ $10 per hour and ≥ 50% of allocated, for 2 consecutive hours" if kind == "waste" else "",
        "figures": FIGURES[kind],
        "workloads": TOP_WASTERS if kind in {"waste", "digest"} else (),
        **changes,
    }
    return Notification(**fields)
