"""The API keeps to its OpenAPI document: a small run of `python -m tests.contract`, on four days in place of a month."""

from collections.abc import Iterator

import pytest

from tests.contract.running import ADMIN, running_api
from tests.contract.schemathesis_run import run


@pytest.fixture(scope="module")
def address(dynamodb_url: str) -> Iterator[str]:
    with running_api(dynamodb_url, days=4) as found:
        yield found


def test_schemathesis_finds_nothing(address: str) -> None:
    done = run(address, ADMIN, examples=4, phases="examples,fuzzing")
    assert done.status == 0, done.output
    assert done.cases >= 60, done.output
