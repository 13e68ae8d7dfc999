"""The product gives the golden answers for the simulated fleets and the demo."""

import pytest

from tests.golden import recording


@pytest.mark.parametrize("name", ["fleet", "demo"])
def test_answers_are_as_recorded(name: str, dynamodb_url: str) -> None:
    changes = recording.check(name, dynamodb_url)
    assert not changes, (
        f"{len(changes)} differences; python -m tests.golden check {name}\n{recording.report(changes, 20)}"
    )
