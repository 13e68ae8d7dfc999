"""An environment in which `python` is not the version of Lambda's."""

import os
import shutil
import sys
from pathlib import Path

from gpucost_devstack.template import REPOSITORY

TOOLS = ("make", "sh", "cp", "find", "mkdir", "rm", "sed", "node")


def other_python() -> Path:
    """The system's Python, which is usually another version than the environment's."""
    return Path(shutil.which("python3", path="/usr/bin:/bin") or sys.executable)


def environment_without_lambdas_python(tools: Path) -> dict[str, str]:
    """Variables of an environment without `python3.13`, in which `python` is another version.

    Args:
        tools: a new folder, which gets links to the programs.
    """
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
