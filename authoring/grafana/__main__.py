"""Writes or checks the files of `dashboards/`: `python -m authoring.grafana [--check]`."""

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from authoring.grafana import business_unit, fleet, ledger, models, node_pool, pipeline
from gpucost.settings_document import parse_settings
from gpucost_cli.manifests.dashboard_metrics import FOLDER, RULES_FILE
from gpucost_cli.rules import documents
from gpucost_devstack.template import REPOSITORY

MODULES: Mapping[str, Any] = {
    "fleet": fleet,
    "business-unit": business_unit,
    "models": models,
    "node-pool": node_pool,
    "pipeline": pipeline,
    "ledger": ledger,
}
_QUICK_START = REPOSITORY / "cluster" / "settings.yaml"
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""The current time for the rules. Any time works, because the quick start's business units have no `from:`."""


def files() -> dict[str, str]:
    """Render every file, by its name: the dashboards, and the quick start's rules as a CloudFormation template."""
    dashboard_texts = {
        f"{name}.json": json.dumps(module.dashboard().build(), cls=JSONEncoder, indent=1, ensure_ascii=False) + "\n"
        for name, module in MODULES.items()
    }
    settings = parse_settings(_QUICK_START.read_text(encoding="utf-8"))
    groups = documents.recording_groups(settings, settings.clusters, _NOW)
    alerts = documents.alerting_groups(include_template=False)
    return {**dashboard_texts, RULES_FILE.name: documents.render_groups("cloudformation", [*groups, *alerts])}


def main(arguments: list[str], folder: Path = FOLDER) -> int:
    """Write or check the files; the exit status is 1 if a committed file differs, 2 for wrong arguments."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m authoring.grafana [--check]", file=sys.stderr)
        return 2
    differs = [
        name
        for name, text in files().items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text
    ]
    if not arguments:
        for name in differs:
            (folder / name).write_text(files()[name], encoding="utf-8")
        return 0
    for name in differs:
        print(f"dashboards/{name} is outdated; run: make dashboards", file=sys.stderr)
    return 1 if differs else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
