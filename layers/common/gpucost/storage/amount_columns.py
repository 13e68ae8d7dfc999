"""Compresses tables of exact amounts into few bytes, for rollups.

A row has some texts (its key) and one `Costs`. Texts are stored once per column, with an index per row. Amounts are
fixed-point numbers in columns of fixed width. Of amounts that follow from others, only the difference from the expected
amount is stored: waste is what remains of allocated, and costs are about GPU-hours × the row's price. Nothing is
rounded: a table reads back equal.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from msgspec.structs import asdict

from gpucost.core.amounts import Costs
from gpucost.core.costs_by_key import CostsByKey

_WORD_BYTES = 8
_SIGN_EXTENSIONS = bytes([0] * 128 + [255] * 128)
"""Maps a number's first byte to the byte that extends its sign."""
Row = tuple[Sequence[str], Costs]


def pack_table(rows: Sequence[Row]) -> bytes:
    """Compress rows whose keys have the same length. They compress best if sorted by key."""
    keys = [*zip(*(key for key, _ in rows), strict=True)]
    dictionaries = [list(dict.fromkeys(column)) for column in keys]
    columns = [*zip(*(_deviations(costs) for _, costs in rows), strict=True)]
    while columns and not any(columns[-1]):
        del columns[-1]
    head = json.dumps(
        {"rows": len(rows), "texts": dictionaries, "amounts": len(columns)}, ensure_ascii=False, separators=(",", ":")
    ).encode()
    parts = [len(head).to_bytes(4, "big"), head]
    for column, texts in zip(keys, dictionaries, strict=True):
        positions = {text: position for position, text in enumerate(texts)}
        indexes = [positions[text] for text in column]
        # Differences: a sorted column becomes a few numbers that compress to almost nothing.
        parts.append(_pack([index - previous for index, previous in zip(indexes, [0, *indexes], strict=False)]))
    parts += [_pack(column) for column in columns]
    return zlib.compress(b"".join(parts), 9)


def unpack_table(data: bytes) -> CostsByKey[tuple[str, ...]]:
    """Read what `pack_table` returned. Amounts that it does not have are 0."""
    texts, amounts = _unpacked(data)
    return CostsByKey(zip(*texts, strict=True) if texts else [()] * len(amounts[0]), amounts)


def unpack_single_key_table(data: bytes) -> CostsByKey[str]:
    """Read a table whose keys are a single text."""
    (units,), amounts = _unpacked(data)
    return CostsByKey(units, amounts)


def _unpacked(data: bytes) -> tuple[list[list[str]], list[Sequence[int]]]:
    """Return columns of texts and columns of amounts."""
    content = zlib.decompress(data)
    size = int.from_bytes(content[:4], "big")
    head = json.loads(content[4 : 4 + size])
    if not head["rows"]:
        return [[]], [()] * len(Costs.names())
    columns = _columns(content[4 + size :], head["rows"])
    texts = []
    for dictionary in head["texts"]:
        texts.append([dictionary[index] for index in accumulate(next(columns))])
    names = Costs.names()[: head["amounts"]]  # new amounts are only ever added at the end
    return texts, _amounts({name: next(columns) for name in names}, head["rows"])


def _deviations(costs: Costs) -> list[int]:
    """Return a row's amounts, each minus the amount that is expected from the others."""
    amounts = asdict(costs)
    return [amounts[name] - _expected_amount(name, amounts) for name in amounts]


def _amounts(deviations: Mapping[str, Sequence[int]], rows: int) -> list[Sequence[int]]:
    """Return the amounts of `Costs`, column by column, by adding what is expected from the others."""
    amounts = {name: deviations.get(name) or [0] * rows for name in Costs.names()}
    for name in ("effective_usd", "unmeasured_usd"):
        part_hours = amounts[name.replace("_usd", "_gpu_hours")]
        columns = zip(amounts[name], part_hours, amounts["allocated_usd"], amounts["allocated_gpu_hours"], strict=True)
        amounts[name] = [
            deviation + hours * usd // total if hours and total else deviation
            for deviation, hours, usd, total in columns
        ]
    parts = ("waste_usd", "allocated_usd", "effective_usd", "unmeasured_usd")
    columns = zip(*(amounts[name] for name in parts), strict=True)
    amounts["waste_usd"] = [
        deviation + usd - effective - unmeasured for deviation, usd, effective, unmeasured in columns
    ]
    return [amounts[name] for name in Costs.names()]


def _expected_amount(name: str, amounts: dict[str, int]) -> int:
    if name == "waste_usd":
        return amounts["allocated_usd"] - amounts["effective_usd"] - amounts["unmeasured_usd"]
    if name in {"effective_usd", "unmeasured_usd"} and amounts["allocated_gpu_hours"]:
        hours = amounts[name.replace("_usd", "_gpu_hours")]
        return hours * amounts["allocated_usd"] // amounts["allocated_gpu_hours"]
    return 0


def _pack(column: Sequence[int]) -> bytes:
    """Write numbers at one width: first all first bytes, which are similar, then all second bytes, and so on."""
    width = max((number.bit_length() // 8 + 1 for number in column), default=1)
    plain = b"".join(number.to_bytes(width, "big", signed=True) for number in column)
    return bytes([width]) + b"".join(plain[position::width] for position in range(width))


def _columns(data: bytes, rows: int) -> Iterator[list[int]]:
    start = 0
    while start < len(data):
        width = data[start]
        planes = data[start + 1 : start + 1 + rows * width]
        if width <= _WORD_BYTES:
            yield _read_words(planes, rows, width)
        else:
            yield [int.from_bytes(planes[row::rows], "big", signed=True) for row in range(rows)]
        start += 1 + rows * width


def _read_words(planes: bytes, rows: int, width: int) -> list[int]:
    """Read numbers of at most eight bytes, all at once."""
    words = bytearray(rows * _WORD_BYTES)
    sign = planes[:rows].translate(_SIGN_EXTENSIONS)
    for position in range(_WORD_BYTES):
        plane = position - (_WORD_BYTES - width)
        words[position::_WORD_BYTES] = sign if plane < 0 else planes[plane * rows : (plane + 1) * rows]
    return list(struct.unpack(f">{rows}q", words))
