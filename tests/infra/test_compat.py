"""`make compat` reads the machine's apt sources, and its lists name existing tests and servers."""

import importlib.util
import re
import subprocess
import sys
from types import ModuleType

import pytest

from gpucost_devstack.template import REPOSITORY


@pytest.fixture(scope="module")
def compat() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compat", REPOSITORY / "scripts/compat.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compat"] = module
    spec.loader.exec_module(module)
    return module


def test_mirror_is_read_from_both_formats_of_apt_sources(compat: ModuleType) -> None:
    deb822 = (
        "Types: deb\n# a comment\nURIs: http://mirror.test/debian\nSuites: bookworm\nComponents: main\n\n"
        "Types: deb\nEnabled: no\nURIs: http://off.test/debian\nComponents: main\n"
    )
    assert list(compat._entries(deb822, is_deb822=True)) == [("http://mirror.test/debian", ["main"])]
    lines = (
        "# deb http://off.test/debian x main\ndeb [signed-by=/k.gpg] http://mirror.test/debian bookworm main contrib\n"
    )
    assert list(compat._entries(lines, is_deb822=False)) == [("http://mirror.test/debian", ["main", "contrib"])]


def test_listed_differences_name_existing_tests(compat: ModuleType) -> None:
    names = [name for server in compat.SERVERS for name in server.differences]
    files = sorted({name.partition("::")[0] for name in names})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *files]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert set(names) <= set(done.stdout.splitlines())


def test_every_server_is_in_the_documentation(compat: ModuleType) -> None:
    page = (
        (REPOSITORY / "docs/how-to/existing-cluster.md").read_text().partition("## Works with")[2].partition("\n## ")[0]
    )
    rows = {row.split("|")[1].strip(): row.split("|")[2].strip() for row in page.splitlines() if row.startswith("| ")}
    for server in compat.SERVERS:
        assert re.fullmatch(r"\d+\.\d+\.\d+", rows[server.name]), server.name
