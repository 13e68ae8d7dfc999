"""Each planted fault quotes text that occurs exactly once, so that a change of the code cannot disable it."""

import pytest

from gpucost_devstack.template import REPOSITORY
from tests.faults.planted import FAULTS, Fault
from tests.faults.planted_clients import CLIENT_FAULTS
from tests.faults.planted_clusters import CLUSTER_FAULTS
from tests.faults.planted_manifests import MANIFEST_FAULTS
from tests.faults.planted_rules import RULES_FAULTS
from tests.faults.planted_vendors import VENDOR_FAULTS


@pytest.mark.parametrize(
    "fault",
    [*FAULTS, *MANIFEST_FAULTS, *RULES_FAULTS, *VENDOR_FAULTS, *CLUSTER_FAULTS, *CLIENT_FAULTS],
    ids=lambda fault: fault.mistake,
)
def test_faults_original_text_occurs_once(fault: Fault) -> None:
    text = (REPOSITORY / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.original) == 1
    assert fault.original != fault.faulty
