"""Compiles the modules of a layer to bytecode: `python -m authoring.bytecode FOLDER`, called by the layers' makefiles.

Bytecode works with one version of Python only. For Lambda's version, CPython compiled to WebAssembly writes it. That is
an npm package that `scripts/setup.sh` installs by its hash, so every machine builds the same bytes.
"""

import compileall
import os
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

LAMBDA_PYTHON = "3.13"


def main(folder: Path) -> bool:
    """Compile everything below `FOLDER/python`, and return whether all of it compiled."""
    version = os.environ.get("GPUCOST_BUILD_PYTHON", LAMBDA_PYTHON)
    if version == LAMBDA_PYTHON:
        return subprocess.run(["node", Path(__file__).with_name("compile.mjs"), folder], check=False).returncode == 0
    if version != f"{sys.version_info.major}.{sys.version_info.minor}":
        sys.exit(
            f"GPUCOST_BUILD_PYTHON: {version} is neither Lambda's {LAMBDA_PYTHON} nor the version of the running Python"
        )
    return bool(
        compileall.compile_dir(
            folder / "python",
            quiet=1,
            stripdir=str(folder),
            prependdir="/opt",
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
    )


if __name__ == "__main__":
    sys.exit(0 if main(Path(sys.argv[1]).resolve()) else 1)
