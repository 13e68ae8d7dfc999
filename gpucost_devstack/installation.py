"""Finds the programs and Node packages that the local stack runs, and says how to install those that are missing."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpucost.core.errors import GpuCostError

PACKAGES_FILE = Path(__file__).with_name("packages.txt")
"""The packages of programs by package manager. `scripts/setup.sh` reads it too."""
HOMEBREW_PREFIXES = ("/opt/homebrew", "/usr/local")
"""Homebrew's folders. It keeps its OpenJDK off the PATH."""


def missing_program(name: str) -> GpuCostError:
    """Return the error for a program that is not installed."""
    packages = _packages(name)
    commands = "; ".join(
        f"{system}: {_installation(manager, packages[manager])}"
        for system, manager in (("Debian and Ubuntu", "apt-get"), ("macOS", "brew"), ("Fedora", "dnf"))
    )
    return GpuCostError(f"{name} is not on the PATH. Install it. {commands}")


def _packages(name: str) -> dict[str, str]:
    """The packages of a program by package manager, with spaces between them."""
    lines = (line.split() for line in PACKAGES_FILE.read_text(encoding="utf-8").splitlines() if line[:1] != "#")
    rows = {program: packages for program, *packages in lines}
    return {manager: packages.replace(",", " ") for manager, packages in zip(rows["program"], rows[name], strict=True)}


def _installation(manager: str, packages: str) -> str:
    return "download it from https://prometheus.io/download/" if packages == "-" else f"{manager} install {packages}"


def java_library(homebrew_prefixes: Sequence[str] = HOMEBREW_PREFIXES) -> Path:
    """Return the JVM library of JAVA_HOME, of the `java` on the PATH, or of Homebrew's OpenJDK.

    Raises:
        GpuCostError: none of them is a Java. The message says how to install it.
    """
    home = os.environ.get("JAVA_HOME")
    prefixes = (os.environ.get("HOMEBREW_PREFIX"), *homebrew_prefixes)
    programs = [f"{home}/bin/java" if home else None, shutil.which("java")]
    programs += [f"{prefix}/opt/openjdk/bin/java" for prefix in prefixes if prefix]
    for program in filter(None, programs):
        # macOS has a /usr/bin/java that belongs to no JVM.
        folder = Path(program).resolve().parent.parent / "lib" / "server"
        for library in (folder / "libjvm.so", folder / "libjvm.dylib"):
            if library.exists():
                return library
    raise missing_program("java")


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
