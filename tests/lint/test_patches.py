"""The check that no test changes a module or class of this repository finds every way to do so."""

from textwrap import dedent

import pytest

from lint.patches import patched_names
from lint.sources import parse

IMPORTS = """
import os
import socket
import gpucost.storage.table
import gpucost_devstack.dynamodb_local as engine
from unittest import mock
from unittest.mock import patch
from gpucost.storage import rollups
from gpucost.storage.table import Table
from gpucost_cli import deployment
"""


def patched(text: str) -> list[str]:
    return [name for _, name in patched_names(parse(IMPORTS + dedent(text)).nodes)]


@pytest.mark.parametrize(
    "text",
    [
        'monkeypatch.setattr("gpucost.storage.rollups.BUCKETS", 2)',
        'monkeypatch.setattr(rollups, "BUCKETS", 2)',
        'monkeypatch.setattr(gpucost.storage.table, "BATCH", 2)',
        'planted.setattr(Table, "query", interrupted)',
        'patched.delattr(Table, "query")',
        'monkeypatch.setitem(rollups.NAMES, "a", 1)',
        'monkeypatch.setattr(engine, "PACKAGE", path)',
        'setattr(deployment, "find", find)',
        'with patch("gpucost.storage.rollups.BUCKETS", 2): pass',
        'with mock.patch.object(Table, "query", interrupted): pass',
        'patch.dict("gpucost.storage.rollups.NAMES", a=1)',
        "Table.query = interrupted",
        "before, rollups.BUCKETS = rollups.BUCKETS, 2",
        "rollups.BUCKETS += 1",
        'rollups.NAMES["a"] = 1',
        "del Table.query",
        """
        def test_store():
            from functions.api import app
            app.container = None
        """,
    ],
)
def test_change_of_a_module_or_class_is_detected(text: str) -> None:
    assert len(patched(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        'monkeypatch.setattr(socket, "getaddrinfo", resolve)',
        'monkeypatch.setattr("botocore.auth.get_current_datetime", now)',
        'monkeypatch.setattr(system.book, "in_force", refuse)',
        'monkeypatch.setenv("GPUCOST_TABLE", "t")',
        "with patch.dict(os.environ, GPUCOST_TABLE='t'): pass",
        "table = Table(client, 'ledger')\ntable.client = client",
        "names = dict(rollups.NAMES)",
        "self.query = Table.query",
    ],
)
def test_objects_of_a_test_and_third_parties_may_change(text: str) -> None:
    assert patched(text) == []
