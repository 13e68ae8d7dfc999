"""Writes the bytecode of a layer's modules: `python -m authoring.bytecode FOLDER`, from the layers' makefiles.

Bytecode is of one version of Python. For Lambda's it is written by CPython compiled to WebAssembly, an npm package that
`scripts/setup.sh` installs by its hash: the same bytes on every machine, whatever Python is installed there.
"""

import compileall
import os
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

LAMBDA_PYTHON = "3.13"


def main(folder: Path) -> bool:
    """Compile everything below `FOLDER/python`; whether all of it could be."""
    version = os.environ.get("GPUCOST_BUILD_PYTHON", LAMBDA_PYTHON)
    if version == LAMBDA_PYTHON:
        return subprocess.run(["node", Path(__file__).with_name("compile.mjs"), folder], check=False).returncode == 0
    if version != f"{sys.version_info.major}.{sys.version_info.minor}":
        sys.exit(f"GPUCOST_BUILD_PYTHON: {version} is neither Lambda's {LAMBDA_PYTHON} nor the Python that runs this")
    return bool(
        compileall.compile_dir(
            folder / "python", quiet=1, stripdir=str(folder), prependdir="/opt",
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(0 if main(Path(sys.argv[1]).resolve()) else 1)
