"""Alert states as they were stored before books: one item per cluster, rule and business unit, rules named by place."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import TypeAdapter

from gpucost.features.alerting.model import Alert, Base, Book, Cursor, Entry, Notification, Subject

_CURSOR_RULE = "*"


@dataclass(frozen=True, slots=True)
class _Notification:
    id: str
    event: Literal["firing", "resolved"]
    rule: str
    cluster: str
    business_unit: str
    since: datetime
    hour: datetime
    waste_usd_per_hour: Decimal
    allocated_usd_per_hour: Decimal
    waste_percent: Decimal
    threshold: str


@dataclass(frozen=True, slots=True)
class _State:
    rule: str
    cluster: str
    business_unit: str
    phase: Literal["inactive", "pending", "firing"]
    since: datetime | None
    breaches: int
    decided_through: datetime | None
    outbox: tuple[tuple[str, _Notification], ...] = ()
    version: int = 0
    sending_until: datetime | None = None


_STATE = TypeAdapter(_State)


def read(scope: str, documents: Iterable[str]) -> tuple[Cursor | None, list[Book]]:
    """Older items as what took their place; those of version 0 are not stored in the new form yet."""
    cursor: Cursor | None = None
    owned: dict[str, list[_State]] = {}
    for document in documents:
        state = _STATE.validate_json(document)
        if state.rule == _CURSOR_RULE:
            cursor = Cursor(scope, state.decided_through)
        else:
            owned.setdefault(state.business_unit, []).append(state)
    books = [_book(scope, owner, states) for owner, states in owned.items()]
    return cursor, [book for book in books if not book.is_empty]


def _book(scope: str, owner: str, states: list[_State]) -> Book:
    book = Book(
        scope,
        owner,
        outbox=tuple(Entry(receiver, _news(told)) for state in states for receiver, told in state.outbox),
        decided_through=max((one.decided_through for one in states if one.decided_through), default=None),
        sending_until=max((one.sending_until for one in states if one.sending_until), default=None),
    )
    return book.with_alerts(_alert(state) for state in states if state.phase != "inactive")


def _alert(state: _State) -> Alert:
    since = state.since or state.decided_through
    if since is None or state.phase == "inactive":
        raise ValueError(f"an alert of {state.rule!r} that has seen no hour")
    firing = state.phase == "firing"
    return Alert(
        state.rule,
        Subject(state.cluster, state.business_unit),
        state.phase,
        since,
        evidence=(),
        base=Base(firing, state.breaches),
        told_at=state.decided_through if firing else None,
    )


def _news(told: _Notification) -> Notification:
    return Notification(
        id=told.id,
        event=told.event,
        kind="waste",
        rule=told.rule,
        severity="warning",
        subject=Subject(told.cluster, told.business_unit),
        since=told.since,
        hour=told.hour,
        threshold=told.threshold,
        figures={
            "waste_usd_per_hour": told.waste_usd_per_hour,
            "allocated_usd_per_hour": told.allocated_usd_per_hour,
            "waste_percent": told.waste_percent,
        },
    )
