"""What the tests of `gpucost doctor` share."""

from collections.abc import Callable

import pytest

from gpucost.settings import parse_settings
from local.doctor import Report, examine
from tests.system.doctor_cluster import Recent
from tests.system.doctor_findings import Examine, document


@pytest.fixture
def examined(prometheus: Callable[[str], str]) -> Examine:
    def run(cluster: Recent, more: str = "", selector: str = "") -> Report:
        url = prometheus(cluster.text())
        one = f'[{{name: demo, prometheus: {{url: "{url}"}}, selector: {{{selector}}}}}]'
        settings = parse_settings(document(url, more=more, clusters=one))
        return examine(settings.clusters[0], settings, cluster.now)

    return run
