"""The type check refuses text, or what may be text, as a number without bounds."""

from pathlib import Path

import pytest
from mypy import api

from gpucost_devstack.template import REPOSITORY
from lint.decimals import REFUSAL

CODE = """
import fractions
from decimal import Decimal
from fractions import Fraction
from typing import Any

def numbers(text: str, count: int, either: int | str, ratio: Decimal, document: dict[str, Any], thing: object) -> None:
    Decimal(text)  # refused
    Fraction(text)  # refused
    fractions.Fraction(numerator=text)  # refused
    Decimal(either)  # refused
    Decimal(document["price"])  # refused
    Decimal(str(thing))  # refused
    Decimal(value=document.get("price", 0))  # refused
    Decimal("0.5"), Decimal(count), Fraction(count, count), Fraction(ratio), Decimal(), Fraction("1/3"), Decimal(1.5)
"""


@pytest.mark.tools  # seconds
def test_text_is_refused_and_numbers_are_not(tmp_path: Path) -> None:
    file, settings = tmp_path / "numbers_of_text.py", tmp_path / "mypy.ini"
    file.write_text(CODE)
    settings.write_text(f"[mypy]\nplugins = {REPOSITORY / 'lint/decimals.py'}\ncache_dir = {tmp_path / 'cache'}\n")
    report, _, _ = api.run(["--config-file", str(settings), str(file)])
    lines = [number for number, line in enumerate(CODE.splitlines(), start=1) if line.endswith("# refused")]
    assert [int(line.split(":")[1]) for line in report.splitlines() if REFUSAL in line] == lines
