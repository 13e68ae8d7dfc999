"""Faults are planted where they were meant to be: code that moves takes its fault along."""

import pytest

from devstack.template import REPOSITORY
from tests.faults.planted import FAULTS, Fault
from tests.faults.planted_kit import KIT_FAULTS
from tests.faults.planted_rules import RULES_FAULTS


@pytest.mark.parametrize("fault", [*FAULTS, *KIT_FAULTS, *RULES_FAULTS], ids=lambda fault: fault.what)
def test_a_fault_has_its_one_place(fault: Fault) -> None:
    text = (REPOSITORY / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.right) == 1
    assert fault.right != fault.wrong
