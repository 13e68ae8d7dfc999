"""Each planted fault quotes text that occurs exactly once, so that a change of the code cannot disable it."""

import pytest

from gpucost_devstack.template import REPOSITORY
from tests.faults.planted import FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.mistake)
def test_faults_original_text_occurs_once(fault: Fault) -> None:
    text = (REPOSITORY / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.original) == 1
    assert fault.original != fault.faulty
