"""The template as CloudFormation sees it, and the artefacts as Lambda gets them."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local.template import REPOSITORY, transform

Template = dict[str, Any]
LAMBDA_PYTHON = "3.13"


@pytest.fixture(scope="session")
def template() -> Template:
    """Transformed."""
    return transform()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`sam build` for this machine: its architecture, and its Python where Lambda's is not installed."""
    folder = tmp_path_factory.mktemp("sam")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    source = REPOSITORY / "template.yaml"
    if here != LAMBDA_PYTHON:
        copy = folder / "template.yaml"
        copy.write_text(source.read_text().replace(f"python{LAMBDA_PYTHON}", f"python{here}"))
        source = copy
    sam = REPOSITORY / ".tools" / "sam" / "bin" / "sam"
    assert sam.exists(), "SAM is missing; install it with: make setup"
    variables = {
        "GPUCOST_BUILD_PLATFORM": f"{platform.machine()}-manylinux_2_28",
        "GPUCOST_BUILD_PYTHON": here,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SAM_CLI_TELEMETRY": "0",
    }
    done = subprocess.run(
        [sam, "build", "--no-cached", "--template", source, "--base-dir", REPOSITORY, "--build-dir", folder / "build"],
        cwd=REPOSITORY, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "build"


@pytest.fixture(scope="session")
def built_for_lambda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dependencies layer as it is deployed: arm64, Python 3.13."""
    return _layer_for_lambda("deps", "DependenciesLayer", tmp_path_factory.mktemp("arm64"))


@pytest.fixture(scope="session")
def duckdb_for_lambda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer of `export` alone, as it is deployed."""
    return _layer_for_lambda("duckdb", "DuckDbLayer", tmp_path_factory.mktemp("arm64"))


def _layer_for_lambda(source: str, name: str, folder: Path) -> Path:
    make = shutil.which("make")
    assert make is not None
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        [make, "-C", REPOSITORY / "layers" / source, f"build-{name}", f"ARTIFACTS_DIR={folder}"],
        check=True, capture_output=True, env={**os.environ, "PATH": path},
    )  # fmt: skip
    return folder
