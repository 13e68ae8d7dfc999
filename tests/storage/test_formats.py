"""Lines as items: a missing piece is noticed, a later version's format is refused, and no digit is lost."""

import random
import time
from decimal import Decimal
from typing import Any

import pytest

from gpucost.core.errors import SourceError
from gpucost.storage import compressed_documents
from gpucost.storage.hour_items import IncompleteLinesError, line_items, read_line_items
from tests.records import line

PARTITION = "C#demo#lines#2026-11-19T10"


def test_missing_chunk_of_lines_is_noticed() -> None:
    chance = random.Random(1)
    lines = [line(pod=chance.randbytes(20_000).hex(), usd=f"{i}.{i:012d}") for i in range(40)]
    pieces = line_items(PARTITION, "1-x#u", lines, int(time.time()) + 9)
    assert len(pieces) > 2
    assert read_line_items(pieces) == lines
    for remaining in (pieces[:-1], pieces[1:], pieces[:1] + pieces[2:]):
        with pytest.raises(IncompleteLinesError, match=f"incomplete: {len(pieces) - 1} of {len(pieces)} chunks"):
            read_line_items(remaining)


def test_lines_of_a_later_format_are_refused() -> None:
    (item,) = line_items(PARTITION, "1-x#u", [line()], int(time.time()) + 9)
    with pytest.raises(SourceError, match="schema version 3; this release reads up to 2"):
        read_line_items([{**item, "v": {"N": "3"}}])


def test_field_of_a_later_version_is_ignored() -> None:
    (item,) = line_items(PARTITION, "1-x#u", [line(), line(pod="q")], 1)
    document: dict[str, Any] = compressed_documents.unpack([item])
    document["columns"]["of_a_later_version"] = ["x", "y"]
    (changed,) = compressed_documents.pack(document)
    assert read_line_items([{**item, "b": {"B": changed}}]) == [line(), line(pod="q")]


def test_equal_amounts_keep_all_digits() -> None:
    lines = [line()._replace(gpu_hourly_usd=Decimal("12.0")), line()._replace(gpu_hourly_usd=Decimal(12))]
    stored = read_line_items(line_items(PARTITION, "1-x#u", lines, 1))
    assert [str(price.gpu_hourly_usd) for price in stored] == ["12.0", "12"]
