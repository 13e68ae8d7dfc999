"""Builds work without Lambda's Python version, and give the same result with every Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpucost_devstack.template import REPOSITORY
from tests.infra.conftest import Template
from tests.infra.stacks import of_type

MAGIC_OF_3_13 = (3571).to_bytes(2, "little") + b"\r\n"
TOOLS = ("make", "sh", "cp", "find", "mkdir", "rm", "sed", "node")
TARGETS = {
    "deps": "DependenciesLayer",
    "duckdb": "DuckDbLayer",
    "common": "CommonLayer",
}


def other_python() -> Path:
    """The system's Python, which is usually another version than the environment's."""
    return Path(shutil.which("python3", path="/usr/bin:/bin") or sys.executable)


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment without `python3.13`, in which `python` is another version."""
    tools = tmp_path_factory.mktemp("tools")
    for tool in TOOLS:
        path = shutil.which(tool)
        assert path is not None, tool
        (tools / tool).symlink_to(path)
    (tools / "uv").symlink_to(REPOSITORY / ".venv" / "bin" / "uv")
    (tools / "python").symlink_to(other_python())
    home = os.environ.get("HOME", "/")
    kept = {name: value for name, value in os.environ.items() if name.lower().startswith(("uv_", "pip_", "ssl_"))}
    kept |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    return {**kept, "HOME": home, "PATH": str(tools), "PYTHONPATH": str(REPOSITORY), "UV_PYTHON": str(tools / "python")}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make(makefile: Path, source: Path, target: str, folder: Path, environment: dict[str, str]) -> dict[str, bytes]:
    """Run a makefile like SAM, in a copy of the source."""
    copy = folder / "source"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    command = ["make", "-s", "--makefile", str(makefile), "-C", str(copy), target, f"ARTIFACTS_DIR={folder / 'made'}"]
    (folder / "made").mkdir()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return contents(folder / "made")


@pytest.mark.parametrize("name", TARGETS)
def test_layer_is_identical_for_every_python_that_builds_it(name: str, poor: dict[str, str], tmp_path: Path) -> None:
    source, target = REPOSITORY / "layers" / name, f"build-{TARGETS[name]}"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    completed = make(source / "Makefile", source, target, tmp_path / "own", environment)
    assert make(source / "Makefile", source, target, tmp_path / "other", poor) == completed
    compiled = [content for path, content in completed.items() if path.endswith(".pyc")]
    assert len(compiled) == sum(path.endswith(".py") for path in completed) > 10
    assert {content[:4] for content in compiled} == {MAGIC_OF_3_13}


def test_functions_are_built_by_make_as_well(template: Template, poor: dict[str, str], tmp_path: Path) -> None:
    """SAM's builder of Python functions needs an installed interpreter of their version."""
    functions = dict(of_type(template, "AWS::Lambda::Function"))
    for name in functions:
        metadata = template["Resources"][name]["Metadata"]
        assert (metadata["BuildMethod"], metadata["ContextPath"]) == ("makefile", "functions"), name
    functions_folder = REPOSITORY / "functions"
    completed = make(functions_folder / "Makefile", functions_folder / "export", "build-ExportFunction", tmp_path, poor)
    assert completed == {"app.py": (functions_folder / "export" / "app.py").read_bytes()}


def test_bytecode_for_another_python_version_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "authoring.bytecode", tmp_path], capture_output=True, text=True, check=False,
        env={**os.environ, "GPUCOST_BUILD_PYTHON": "3.9"}, cwd=REPOSITORY,
    )  # fmt: skip
    assert done.returncode == 1
    assert "3.9 is neither Lambda's 3.13 nor the version of the running Python" in done.stderr


def test_module_that_does_not_compile_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "broken.py").write_text("def (:\n")
    done = subprocess.run(
        [sys.executable, "-m", "authoring.bytecode", tmp_path], capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "GPUCOST_BUILD_PYTHON"}, cwd=REPOSITORY,
    )  # fmt: skip
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
