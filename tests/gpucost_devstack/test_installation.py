"""Node packages of the demo outside a clone: installed once into the user's cache, or not at all."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpucost.core.errors import GpuCostError
from gpucost_devstack.installation import find_program, java_library, node_package_folder

NPM = """#!/bin/sh
# npm ci … --prefix FOLDER
for folder; do :; done
echo run >> "$NPM_RUNS"
mkdir "$folder/node_modules"
"""


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "simulator"
    folder.mkdir()
    for name in ("package.json", "package-lock.json", "evaluate.mjs", "module.py"):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def with_npm(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Write a program `npm`, and return the variables with which it is found."""

    def write(script: str) -> dict[str, str]:
        program = tmp_path / "bin" / "npm"
        program.parent.mkdir()
        program.write_text(script)
        program.chmod(0o755)
        cache = str(tmp_path / "cache")
        return {"PATH": f"{program.parent}:/usr/bin:/bin", "XDG_CACHE_HOME": cache, "NPM_RUNS": str(tmp_path / "runs")}

    return write


def test_packages_are_installed_once_for_each_lock(
    source: Path, with_npm: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    with environment(**with_npm(NPM)):
        folder = node_package_folder(source)
        assert node_package_folder(source) == folder
        assert sorted(path.name for path in folder.iterdir()) == [
            "evaluate.mjs",
            "node_modules",
            "package-lock.json",
            "package.json",
        ]
        assert (tmp_path / "runs").read_text() == "run\n"
        (source / "package-lock.json").write_text('{"changed": true}')
        assert node_package_folder(source) != folder
        assert (tmp_path / "runs").read_text() == "run\nrun\n"


def test_packages_in_the_folder_are_used_as_they_are(source: Path) -> None:
    (source / "node_modules").mkdir()
    assert node_package_folder(source) == source


def test_failed_installation_leaves_nothing_and_says_why(
    source: Path, with_npm: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    variables = with_npm("#!/bin/sh\necho 'no such host' >&2\nexit 1\n")
    with environment(**variables), pytest.raises(GpuCostError, match=r"npm could not install .* no such host"):
        node_package_folder(source)
    assert list((tmp_path / "cache" / "gpucost" / "node").iterdir()) == []


@pytest.mark.parametrize(
    ("program", "commands"),
    [
        (
            "npm",
            "Debian and Ubuntu: apt-get install nodejs npm; macOS: brew install node; Fedora: dnf install nodejs npm",
        ),
        (
            "alertmanager",
            "Debian and Ubuntu: apt-get install prometheus-alertmanager; "
            "macOS: download it from https://prometheus.io/download/; "
            "Fedora: download it from https://prometheus.io/download/",
        ),
    ],
)
def test_missing_program_names_the_package_of_each_system(program: str, commands: str) -> None:
    with environment(PATH="/nonexistent"), pytest.raises(GpuCostError) as error:
        find_program(program)
    assert str(error.value) == f"{program} is not on the PATH. Install it. {commands}"


def java_home(folder: Path, library: str) -> Path:
    """A Java with the layout of Linux' or macOS' library."""
    for name in ("bin/java", f"lib/server/{library}"):
        file = folder / name
        file.parent.mkdir(parents=True)
        file.touch(mode=0o755)
    return folder


def test_java_of_homebrew_is_used_where_macos_has_only_its_placeholder(tmp_path: Path) -> None:
    placeholder = tmp_path / "usr" / "bin" / "java"
    placeholder.parent.mkdir(parents=True)
    placeholder.touch(mode=0o755)
    home = java_home(tmp_path / "Cellar" / "openjdk.jdk" / "Contents" / "Home", "libjvm.dylib")
    link = tmp_path / "homebrew" / "opt" / "openjdk" / "bin" / "java"
    link.parent.mkdir(parents=True)
    link.symlink_to(home / "bin" / "java")
    with environment(PATH=str(placeholder.parent), JAVA_HOME="", HOMEBREW_PREFIX=str(tmp_path / "homebrew")):
        assert java_library() == home / "lib" / "server" / "libjvm.dylib"
        other = java_home(tmp_path / "jdk", "libjvm.so")
        os.environ["JAVA_HOME"] = str(other)
        assert java_library() == other / "lib" / "server" / "libjvm.so"


def test_missing_java_is_reported(tmp_path: Path) -> None:
    message = r"java is not on the PATH.*brew install openjdk"
    with environment(PATH=str(tmp_path), JAVA_HOME="", HOMEBREW_PREFIX=""), pytest.raises(GpuCostError, match=message):
        java_library(homebrew_prefixes=())
