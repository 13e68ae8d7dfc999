"""Recorded files: JSON with exact numbers, gzipped reproducibly, within the allowed file size."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import simplejson

FOLDER = Path(__file__).with_name("recorded")
LARGEST = 480_000
"""Largest size of a file in bytes. The repository allows 500 KB."""


def loads(text: str | bytes) -> Any:
    """JSON with numbers as exact decimals."""
    return simplejson.loads(text, parse_float=Decimal, parse_int=Decimal)


def dumps(document: Any) -> str:
    """Serialize a document. Equal documents give equal texts."""
    return simplejson.dumps(document, use_decimal=True, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def write(name: str, document: Mapping[str, Any], folder: Path = FOLDER) -> list[Path]:
    """Replace the recording of a name by a mapping, in several files if one would be too large."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob(f"{name}.*.json.gz"):
        old.unlink()
    texts = [f"{dumps(key)}:{dumps(document[key])}" for key in sorted(document)]
    raw = sum(map(len, texts))
    most = raw  # characters of a file
    while True:
        packed = [gzip.compress(f"{{{','.join(chunk)}}}".encode(), 9, mtime=0) for chunk in _chunks(texts, most)]
        largest = max(map(len, packed))
        if largest <= LARGEST:
            break
        most = int(min(most, raw) * LARGEST / largest * 0.9)
    paths = [folder / f"{name}.{number:02}.json.gz" for number in range(len(packed))]
    for path, content in zip(paths, packed, strict=True):
        path.write_bytes(content)
    return paths


def read(name: str, folder: Path = FOLDER, *, exact: bool = True) -> dict[str, Any]:
    """The recording of a name, or {} if there is none.

    Args:
        name: of the recording.
        folder: where it is.
        exact: numbers as decimals; otherwise as Python's int and float, which takes a tenth of the time.
    """
    document: dict[str, Any] = {}
    for path in sorted(folder.glob(f"{name}.*.json.gz")):
        text = gzip.decompress(path.read_bytes())
        document |= loads(text) if exact else json.loads(text)
    return document


def _chunks(texts: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    begin = size = 0
    for position, text in enumerate(texts):
        if size + len(text) > most and position > begin:
            yield texts[begin:position]
            begin, size = position, 0
        size += len(text)
    yield texts[begin:]
