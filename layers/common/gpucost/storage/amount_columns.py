"""Tables of exact figures in few bytes: what rollups are stored as.

A row has some texts (its key) and one `Costs`. Texts are kept once per column, with an index per row; amounts are whole
numbers of 1e-12 in columns of fixed width, of which only what the others do not tell is kept: waste is what is left of
allocated, and money is near hours × the row's own price. Nothing is rounded; a table reads back equal.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from gpucost.core.fixed_point import CostTable, to_costs
from gpucost.core.model import Costs
from gpucost.core.money import to_fixed_point

_WORD = 8
_SIGNS = bytes([0] * 128 + [255] * 128)
"""What stands before a number's first byte when it is made longer."""
Row = tuple[Sequence[str], Costs]


def pack_table(rows: Sequence[Row]) -> bytes:
    """Rows of equal length of key, best sorted by it."""
    keys = [*zip(*(key for key, _ in rows), strict=True)]
    dictionaries = [list(dict.fromkeys(column)) for column in keys]
    head = json.dumps(
        {"rows": len(rows), "texts": dictionaries, "amounts": len(Costs.names())},
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    parts = [len(head).to_bytes(4, "big"), head]
    for column, texts in zip(keys, dictionaries, strict=True):
        places = {text: place for place, text in enumerate(texts)}
        indexes = [places[text] for text in column]
        # Differences: a sorted column becomes a few values that compress to almost nothing.
        parts.append(_pack([one - before for one, before in zip(indexes, [0, *indexes], strict=False)]))
    told = [_told(costs) for _, costs in rows]
    parts += [_pack(column) for column in zip(*told, strict=True)]
    return zlib.compress(b"".join(parts), 9)


def unpack_table(data: bytes) -> list[tuple[tuple[str, ...], Costs]]:
    """Back from `pack_table`; an amount that is newer than the table is 0."""
    texts, amounts = _unpacked(data)
    rows = [*zip(*amounts, strict=True)]
    keys = zip(*texts, strict=True) if texts else [()] * len(rows)
    return [*zip(keys, to_costs(rows), strict=True)]


def unpack_sums(data: bytes) -> CostTable[str]:
    """A table of rows that one text tells apart: for who adds them up and shows few."""
    (names,), amounts = _unpacked(data)
    return CostTable(names, amounts)


def _unpacked(data: bytes) -> tuple[list[list[str]], list[Sequence[int]]]:
    """Columns of texts, and columns of amounts."""
    content = zlib.decompress(data)
    size = int.from_bytes(content[:4], "big")
    head = json.loads(content[4 : 4 + size])
    if not head["rows"]:
        return [[]], [()] * len(Costs.names())
    columns = _columns(content[4 + size :], head["rows"])
    texts = []
    for dictionary in head["texts"]:
        places = accumulate(next(columns))
        texts.append([dictionary[place] for place in places])
    names = Costs.names()[: head["amounts"]]  # further ones are only ever added at the end
    return texts, _amounts({name: next(columns) for name in names}, head["rows"])


def _told(costs: Costs) -> list[int]:
    """A row's amounts, each less what those before it lead to expect."""
    own = {name: to_fixed_point(getattr(costs, name)) for name in Costs.names()}
    return [own[name] - _expected(name, own) for name in own]


def _amounts(told: Mapping[str, Sequence[int]], rows: int) -> list[Sequence[int]]:
    """The amounts of `Costs`, column by column, each with what the others lead to expect."""
    own = {name: told.get(name) or [0] * rows for name in Costs.names()}
    for name in ("effective_usd", "unmeasured_usd"):
        hours = own[name.replace("_usd", "_gpu_hours")]
        columns = zip(own[name], hours, own["allocated_usd"], own["allocated_gpu_hours"], strict=True)
        own[name] = [more + (held * usd // whole if whole else 0) for more, held, usd, whole in columns]
    parts = ("waste_usd", "allocated_usd", "effective_usd", "unmeasured_usd")
    columns = zip(*(own[name] for name in parts), strict=True)
    own["waste_usd"] = [more + usd - used - unseen for more, usd, used, unseen in columns]
    return [own[name] for name in Costs.names()]


def _expected(name: str, own: dict[str, int]) -> int:
    if name == "waste_usd":
        return own["allocated_usd"] - own["effective_usd"] - own["unmeasured_usd"]
    if name in {"effective_usd", "unmeasured_usd"} and own["allocated_gpu_hours"]:
        hours = own[name.replace("_usd", "_gpu_hours")]
        return hours * own["allocated_usd"] // own["allocated_gpu_hours"]
    return 0


def _pack(column: Sequence[int]) -> bytes:
    """Numbers at one width, first all their first bytes, then all their second ones: the first ones are much alike."""
    width = max((number.bit_length() // 8 + 1 for number in column), default=1)
    plain = b"".join(number.to_bytes(width, "big", signed=True) for number in column)
    return bytes([width]) + b"".join(plain[place::width] for place in range(width))


def _columns(data: bytes, rows: int) -> Iterator[list[int]]:
    at = 0
    while at < len(data):
        width = data[at]
        planes = data[at + 1 : at + 1 + rows * width]
        if width <= _WORD:
            yield _words(planes, rows, width)
        else:
            yield [int.from_bytes(planes[row::rows], "big", signed=True) for row in range(rows)]
        at += 1 + rows * width


def _words(planes: bytes, rows: int, width: int) -> list[int]:
    """Numbers of at most eight bytes, all at once."""
    words = bytearray(rows * _WORD)
    sign = planes[:rows].translate(_SIGNS)
    for place in range(_WORD):
        plane = place - (_WORD - width)
        words[place::_WORD] = sign if plane < 0 else planes[plane * rows : (plane + 1) * rows]
    return list(struct.unpack(f">{rows}q", words))
