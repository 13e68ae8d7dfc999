"""`scripts/setup.sh` says what failed, and never takes half an installation for a whole one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from local.template import REPOSITORY


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose environments exist, and whose uv fails as it does without a network."""
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
    return tmp_path


def setup(checkout: Path, what: str) -> subprocess.CompletedProcess[str]:
    script = checkout / "scripts" / "setup.sh"
    return subprocess.run([script, what], capture_output=True, text=True, check=False, env=dict(os.environ))


def succeed_for(checkout: Path, lock: str) -> None:
    """Let uv install this lock (and the project itself), and fail on any other."""
    uv = checkout / ".venv" / "bin" / "uv"
    uv.write_text(f'#!/bin/sh\ncase "$*" in *sync*{lock} | *install*) exit 0 ;; esac\nexit 2\n')


@pytest.mark.parametrize("lock", ["requirements/dev.txt", "requirements/sam.txt"])
def test_a_failed_installation_is_said_and_tried_again(checkout: Path, lock: str) -> None:
    if lock != "requirements/dev.txt":
        succeed_for(checkout, "requirements/dev.txt")
    folder = {"requirements/dev.txt": ".venv", "requirements/sam.txt": ".tools/sam"}[lock]
    for _ in range(2):
        done = setup(checkout, "build")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == f"setup: could not install the packages of {lock}"
        assert not (checkout / folder / ".made-from").exists()


def test_what_is_installed_is_left_alone_until_its_lock_changes(checkout: Path) -> None:
    succeed_for(checkout, "requirements/*.txt")
    assert setup(checkout, "build").returncode == 0
    succeed_for(checkout, "nothing")
    again = setup(checkout, "build")
    assert (again.returncode, again.stderr) == (0, "")
    with (checkout / "requirements" / "sam.txt").open("a") as lock:
        lock.write("# changed\n")
    assert setup(checkout, "build").stderr.splitlines()[-1] == (
        "setup: could not install the packages of requirements/sam.txt"
    )
