"""`scripts/figures.py` counts modules, importers and lines of a work tree by its definitions."""

import subprocess
from pathlib import Path

from scripts.figures import figures

FILES = {
    "layers/common/gpucost/__init__.py": "",
    "layers/common/gpucost/used.py": "from gpucost import shared\n",
    "layers/common/gpucost/shared.py": "# fmt: skip\n\n",
    "functions/api/app.py": "def handler():\n    import gpucost.shared\n    from gpucost.used import name\n",
    "tests/test_used.py": "from gpucost import used\n",
    "scripts/tool.py": "import os\n",
    "README.md": "fmt: skip\n",
}


def test_figures_count_tracked_python_and_importers_that_are_no_tests(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    (tmp_path / "tests" / "untracked.py").write_text("import gpucost\n")
    assert figures(tmp_path) == {
        "modules of the layer": 3,
        "of them imported by one module": 1,
        "lines of Python": 7,
        "lines of Python in tests": 1,
        "`fmt: skip`": 1,
    }
