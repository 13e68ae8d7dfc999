"""Writes or checks `docs/reference/openapi.json`: `python -m authoring.openapi [--check]`."""

import json
import sys
from pathlib import Path
from typing import NoReturn

from gpucost.api.app import Services, build_app, openapi_document

OPENAPI_PATH = Path(__file__).parent.parent / "docs" / "reference" / "openapi.json"


def _no_service() -> NoReturn:
    raise AssertionError("the description of the API must not call a service")


def openapi_text() -> str:
    """Render the document as it is committed."""
    app = build_app(Services(**dict.fromkeys(Services.__struct_fields__, _no_service)), OPENAPI_PATH.parent)
    return json.dumps(openapi_document(app), indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check the document; the exit status is 1 if the committed document differs, 2 for wrong arguments."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m authoring.openapi [--check]", file=sys.stderr)
        return 2
    if not arguments:
        OPENAPI_PATH.write_text(openapi_text(), encoding="utf-8")
        return 0
    if OPENAPI_PATH.exists() and OPENAPI_PATH.read_text(encoding="utf-8") == openapi_text():
        return 0
    print("docs/reference/openapi.json is outdated; run: python -m authoring.openapi", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
