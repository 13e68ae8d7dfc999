"""What covers all business units is denied to a caller who may see some of them, whatever the routes allow."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import cast

import pytest

from gpucost.core.access import Scope
from gpucost.core.errors import AccessDeniedError
from gpucost.core.hour_record import Coverage
from gpucost.core.hours import HOUR
from gpucost.core.ledger import Manifest
from gpucost.reports.scoped import scoped_hours
from gpucost.storage.ports import PublishedHours

START = datetime(2026, 11, 19, 10, tzinfo=UTC)
MANIFEST = Manifest("east", START, "complete", 1, "run", 1, Coverage(Decimal(1), None), 0, None, START)


@pytest.mark.parametrize(
    "read",
    [
        lambda hours: hours.nodes_and_charges_of(MANIFEST),
        lambda hours: hours.nodes_and_charges("east", START),
        lambda hours: [*hours.all_nodes("east", START, START + HOUR)],
        lambda hours: hours.restatements("east", START, START + HOUR),
    ],
)
def test_nodes_and_restatements_are_denied(read: Callable[[PublishedHours], object]) -> None:
    unread_ledger = cast(PublishedHours, object())
    hours = scoped_hours(unread_ledger, Scope(frozenset({"research"})))
    with pytest.raises(AccessDeniedError, match="needs the role viewer or admin"):
        read(hours)
