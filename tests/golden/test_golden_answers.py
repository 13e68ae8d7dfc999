"""The product gives the golden answers for the demo. `make nightly` checks those of all scenarios."""

from tests.golden import recording


def test_answers_for_the_demo_are_as_recorded(dynamodb_url: str) -> None:
    changes = recording.check("demo", dynamodb_url)
    assert not changes, (
        f"{len(changes)} differences; python -m tests.golden check demo\n{recording.report(changes, 20)}"
    )
