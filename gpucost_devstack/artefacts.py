"""Runs `sam build` for this machine's architecture and Python version."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from gpucost.core.errors import GpuCostError
from gpucost_devstack.template import REPOSITORY

LAYERS = ("DependenciesLayer", "CommonLayer")
"""The layers of every function."""


def sam_build(folder: Path, environment: Mapping[str, str] | None = None) -> Path:
    """Run `sam build` without Docker, and return the folder of its artifacts.

    Args:
        folder: gets the artifacts.
        environment: of the makefiles; by default that of this process, with its Python first.

    Raises:
        GpuCostError: SAM is not installed, or the build fails. The message says why.
    """
    python_version = f"{sys.version_info.major}.{sys.version_info.minor}"
    sam = REPOSITORY / ".tools" / "sam" / "bin" / "sam"
    if not sam.exists():
        raise GpuCostError("SAM is missing; install it with: make setup")
    variables = {
        "GPUCOST_BUILD_PLATFORM": f"{platform.machine()}-manylinux_2_28",
        "GPUCOST_BUILD_PYTHON": python_version,
        "SAM_CLI_TELEMETRY": "0",
    }
    if environment is None:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    completed = subprocess.run(
        [sam, "build", "--no-cached", "--build-dir", folder / "build"],
        cwd=REPOSITORY,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        raise GpuCostError(f"sam build failed: {completed.stderr[-2000:]}")
    return folder / "build"


def function_entry(built: Path, name: str) -> tuple[str, list[Path]]:
    """A built function's handler, and the folders of its import path."""
    properties = _resources(built / "template.yaml")[name]["Properties"]
    layers = re.findall(r"\w+Layer\w*", str(properties.get("Layers", "")))
    folders = [built / properties["CodeUri"], *(built / layer / "python" for layer in (*layers, *LAYERS))]
    return properties.get("Handler", "app.handler"), folders


@cache
def _resources(template: Path) -> dict[str, Any]:
    resources: dict[str, Any] = yaml_parse(template.read_text())["Resources"]
    return resources
