"""What `sam build` makes, for this machine: its architecture, and its Python where Lambda's is not installed."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from samtranslator.yaml_helper import yaml_parse

from devstack.template import REPOSITORY
from gpucost.core.errors import GpuCostError

LAYERS = ("DependenciesLayer", "CommonLayer")
"""Of every function."""


def build(folder: Path) -> Path:
    """Run `sam build`, without Docker; the folder of its artefacts.

    Raises:
        GpuCostError: SAM is not installed, or refuses; says why.
    """
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    sam = REPOSITORY / ".tools" / "sam" / "bin" / "sam"
    if not sam.exists():
        raise GpuCostError("SAM is missing; install it with: make setup")
    variables = {
        "GPUCOST_BUILD_PLATFORM": f"{platform.machine()}-manylinux_2_28",
        "GPUCOST_BUILD_PYTHON": here,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SAM_CLI_TELEMETRY": "0",
    }
    done = subprocess.run(
        [sam, "build", "--no-cached", "--build-dir", folder / "build"],
        cwd=REPOSITORY, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise GpuCostError(f"sam build failed: {done.stderr[-2000:]}")
    return folder / "build"


def function(built: Path, name: str) -> tuple[str, list[Path]]:
    """A built function's handler, and all that is on its path."""
    properties = yaml_parse((built / "template.yaml").read_text())["Resources"][name]["Properties"]
    own = re.findall(r"\w+Layer\w*", str(properties.get("Layers", "")))
    folders = [built / properties["CodeUri"], *(built / layer / "python" for layer in (*own, *LAYERS))]
    return properties.get("Handler", "app.handler"), folders
