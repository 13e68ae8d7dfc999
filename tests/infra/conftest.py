"""Fixtures: the template as CloudFormation sees it, and the artifacts as deployed to Lambda."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpucost_devstack.template import REPOSITORY, transformed_template

Template = dict[str, Any]


@pytest.fixture(scope="session")
def template() -> Template:
    """The transformed template."""
    return transformed_template()


@pytest.fixture(scope="session")
def built(new_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the result of `sam build` for this machine. Functions that run in it add bytecode."""
    folder = tmp_path_factory.mktemp("sam") / "build"
    shutil.copytree(new_build, folder)
    return folder


@pytest.fixture(scope="session")
def built_for_lambda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The deployed dependencies layer: arm64, Python 3.13."""
    return _layer_for_lambda("deps", "DependenciesLayer", tmp_path_factory.mktemp("arm64"))


@pytest.fixture(scope="session")
def duckdb_for_lambda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The deployed layer of `export`."""
    return _layer_for_lambda("duckdb", "DuckDbLayer", tmp_path_factory.mktemp("arm64"))


def _layer_for_lambda(source: str, name: str, folder: Path) -> Path:
    make = shutil.which("make")
    assert make is not None
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        [make, "-C", REPOSITORY / "layers" / source, f"build-{name}", f"ARTIFACTS_DIR={folder}"],
        check=True,
        capture_output=True,
        env={**os.environ, "PATH": path},
    )
    return folder
