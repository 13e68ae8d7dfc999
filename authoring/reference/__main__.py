"""Writes or checks the generated pages and tables: `python -m authoring.reference [--check]`."""

import json
import sys
from pathlib import Path

from authoring.openapi import openapi_text
from authoring.reference.command_line import command_line_page
from authoring.reference.doctor import doctor_page
from authoring.reference.http_api import http_api_page
from authoring.reference.metrics import metrics_page
from authoring.reference.recommendations import page_module, recommendations_page
from authoring.reference.settings import alerts_page, settings_page
from authoring.reference.template import template_page
from gpucost_cli.settings_schema import settings_schema_text
from gpucost_devstack.template import REPOSITORY

ALERTS_PAGE, DOCTOR_PAGE = "docs/how-to/alerts.md", "docs/reference/doctor.md"
RECOMMENDATIONS_PAGE = "docs/explanation/recommendations.md"


def files() -> dict[str, str]:
    """Render every file, by its path."""
    return {
        "docs/reference/settings.md": settings_page(),
        "docs/reference/settings.schema.json": settings_schema_text(),
        "docs/reference/cli.md": command_line_page(),
        "docs/reference/template.md": template_page(),
        "docs/reference/metrics.md": metrics_page(),
        "docs/reference/http-api.md": http_api_page(json.loads(openapi_text())),
        "web/src/recommendation-kinds.ts": page_module(),
        **{
            name: render((REPOSITORY / name).read_text(encoding="utf-8"))
            for name, render in (
                (DOCTOR_PAGE, doctor_page),
                (ALERTS_PAGE, alerts_page),
                (RECOMMENDATIONS_PAGE, recommendations_page),
            )
        },
    }


def main(arguments: list[str], folder: Path = REPOSITORY) -> int:
    """Write or check the files; the exit status is 1 if a committed file differs, 2 for wrong arguments."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m authoring.reference [--check]", file=sys.stderr)
        return 2
    outdated = {
        name: text
        for name, text in files().items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text
    }
    if not arguments:
        for name, text in outdated.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return 0
    for name in outdated:
        print(f"{name} is outdated; run: make reference", file=sys.stderr)
    return 1 if outdated else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
