"""The tables of docs/reference/doctor.md on the checks of `gpucost doctor`."""

import re
from typing import get_args

from authoring.reference.markdown import table
from gpucost_cli.doctor import CONNECTION_ROWS
from gpucost_cli.doctor.checks import CHECKS
from gpucost_cli.doctor.checks.model import Section


def doctor_page(current: str) -> str:
    """Render the page: the current one, with a row for each result of a check in its section."""
    for number, section in enumerate(get_args(Section)):
        texts = [CONNECTION_ROWS] * (number == 0) + [check.rows for check in CHECKS if check.section == section]
        rows = [line.split(" | ") for text in texts for line in text.strip().splitlines()]
        checks = table(("check", "meaning", "change"), rows)
        heading, _, rest = current.partition(f"\n## Findings: {section}\n")
        before, _, after = re.split(r"^(\| check \|.*\n(?:\|.*\n)+)", rest, maxsplit=1, flags=re.MULTILINE)
        current = f"{heading}\n## Findings: {section}\n{before}{checks}\n{after}"
    return current
