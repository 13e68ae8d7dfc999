"""Builds work without Lambda's Python version. tests/release compares whole builds of two Pythons."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from gpucost_devstack.template import REPOSITORY
from tests.infra.conftest import Template
from tests.infra.stacks import of_type
from tests.other_python import environment_without_lambdas_python


def test_functions_are_built_by_make_as_well(template: Template, tmp_path: Path) -> None:
    """SAM's builder of Python functions needs an installed interpreter of their version."""
    functions = dict(of_type(template, "AWS::Lambda::Function"))
    for name in functions:
        metadata = template["Resources"][name]["Metadata"]
        assert (metadata["BuildMethod"], metadata["ContextPath"]) == ("makefile", "functions"), name
    folder = REPOSITORY / "functions"
    copy, made, tools = (tmp_path / name for name in ("source", "made", "tools"))
    shutil.copytree(folder / "export", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (made, tools):
        path.mkdir()
    command = ["make", "-s", f"--makefile={folder}/Makefile", f"--directory={copy}", f"ARTIFACTS_DIR={made}"]
    subprocess.run([*command, "build-ExportFunction"], env=environment_without_lambdas_python(tools), check=True)
    contents = {str(path.relative_to(made)): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    assert contents == {"app.py": (folder / "export" / "app.py").read_bytes()}


def test_bytecode_for_another_python_version_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "authoring.bytecode", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GPUCOST_BUILD_PYTHON": "3.9"},
        cwd=REPOSITORY,
    )
    assert done.returncode == 1
    assert "3.9 is neither Lambda's 3.13 nor the version of the running Python" in done.stderr


def test_module_that_does_not_compile_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "broken.py").write_text("def (:\n")
    done = subprocess.run(
        [sys.executable, "-m", "authoring.bytecode", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "GPUCOST_BUILD_PYTHON"},
        cwd=REPOSITORY,
    )
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
