"""The product gives the golden answers for prices, and for five weeks of a cluster."""

import pytest

from tests.golden import recording


@pytest.mark.parametrize("name", ["prices", pytest.param("months", marks=pytest.mark.nightly)])
def test_answers_are_as_recorded(name: str, dynamodb_url: str) -> None:
    changes = recording.check(name, dynamodb_url)
    assert not changes, (
        f"{len(changes)} differences; python -m tests.golden check {name}\n{recording.report(changes, 20)}"
    )
