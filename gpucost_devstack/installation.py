"""Finds the programs and Node packages that the local stack runs, and says how to install those that are missing."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from gpucost.core.errors import GpuCostError

_PACKAGES = {
    "prometheus": ("prometheus", "prometheus", "golang-github-prometheus"),
    "promtool": ("prometheus", "prometheus", "golang-github-prometheus"),
    "java": ("openjdk-17-jre-headless", "openjdk", "java-21-openjdk-headless"),
    "node": ("nodejs", "node", "nodejs"),
    "npm": ("npm", "node", "nodejs-npm"),
}
"""The packages with each program: Debian's and Ubuntu's, Homebrew's, Fedora's."""


def missing_program(name: str) -> GpuCostError:
    """Return the error for a program that is not on the PATH."""
    debian, homebrew, fedora = _PACKAGES[name]
    return GpuCostError(
        f"{name} is not on the PATH. Install it. Debian and Ubuntu: apt-get install {debian}; macOS: brew install "
        f"{homebrew}; Fedora: dnf install {fedora}"
    )


def find_program(name: str) -> str:
    """Return the path of a program.

    Raises:
        GpuCostError: it is not installed. The message says how to install it.
    """
    path = shutil.which(name)
    if path is None:
        raise missing_program(name)
    return path


def node_package_folder(source: Path) -> Path:
    """Return a folder with the contents of `source` and the Node packages of its package-lock.json.

    `make setup` installs them in the repository. Otherwise npm installs them once, in the user's cache.

    Raises:
        GpuCostError: npm is missing or fails.
    """
    if (source / "node_modules").is_dir():
        return source
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpucost" / "node"
    # A changed lock is another folder, so an upgrade never runs with old packages.
    lock = (source / "package-lock.json").read_bytes()
    folder = cache / f"{source.name}-{hashlib.sha256(lock).hexdigest()[:16]}"
    if (folder / "node_modules").is_dir():
        return folder
    npm = find_program("npm")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as partial:
        target = Path(partial) / source.name
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        command = [
            npm,
            "ci",
            "--loglevel=error",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(target),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise GpuCostError(
                f"npm could not install the packages of {source.name}: {done.stderr.strip()[-300:] or 'no message'}. "
                "Is the npm registry reachable?"
            )
        try:
            target.rename(folder)
        except OSError:  # another demo has installed them in the meantime
            if not folder.is_dir():
                raise
    return folder
