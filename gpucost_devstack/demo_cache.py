"""What a demo keeps for the next one: simulated metrics, and the ledger with the hours attributed so far.

`index.json` names the files that belong to the cache, with their checksums. It is replaced in one step, after the files
are complete. So a demo that is killed at any time leaves the previous state. A cache with a damaged or missing file is
discarded. A demo works on copies, and holds a lock on the cache while it runs.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import gpucost
from gpucost.core.hours import format_timestamp, parse_timestamp
from gpucost_devstack.metrics_segment import Segment
from gpucost_devstack.template import TEMPLATE

INDEX = "index.json"
COPY_ATTEMPTS = 5


def cache_folder() -> Path:
    """The folder of all caches, in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpucost" / "demo"


def cache_key(settings: Mapping[str, Any], scale: int, template: Path = TEMPLATE) -> str:
    """A name for the state that this version of the product computes. It changes with the product's code."""
    digest = hashlib.sha256(json.dumps([settings, scale]).encode() + template.read_bytes())
    for package in (Path(gpucost.__file__).parent, Path(__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(slots=True)
class CacheIndex:
    """What the cache contains.

    Attributes:
        checksums: SHA-256 of every file, by path.
        segments: the simulated periods, as (start, end).
        snapshot: folder of the newest copy of the ledger; "" for none.
        scheduled_until: the end of the last hour that the schedule attributed.
        prometheus_port: the port in the settings.
        is_complete: whether the history and what follows it are in the ledger.
    """

    checksums: dict[str, str] = field(default_factory=dict)
    segments: list[tuple[str, str]] = field(default_factory=list)
    snapshot: str = ""
    scheduled_until: str = ""
    prometheus_port: int = 0
    is_complete: bool = False


class DemoCache:
    """The cache of a demo.

    Args:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = CacheIndex()
        (folder / "segments").mkdir(parents=True, exist_ok=True)

    @classmethod
    def read(cls, folder: Path, oldest: datetime) -> Self:
        """Read a cache. One that is damaged, or whose newest hour is before `oldest`, is discarded."""
        cache = cls(folder)
        try:
            cache.index = CacheIndex(**json.loads((folder / INDEX).read_text()))
            is_usable = all(_checksum(folder / path) == digest for path, digest in cache.index.checksums.items())
            is_usable = is_usable and max((segment.end for segment in cache.segments()), default=oldest) >= oldest
        except (OSError, TypeError, ValueError):
            is_usable = False
        if not is_usable:
            cache.index = CacheIndex()
            shutil.rmtree(folder / "segments", ignore_errors=True)
        cache._remove_unlisted_files()
        return cache

    def segments(self) -> list[Segment]:
        """The simulated periods, in order."""
        return sorted(Segment(parse_timestamp(start), parse_timestamp(end)) for start, end in self.index.segments)

    def segment_folder(self, segment: Segment) -> Path:
        """Where the blocks of a segment are."""
        return self.folder / "segments" / segment.name

    def add_segment(self, segment: Segment) -> None:
        """Keep a segment, whose folder is complete."""
        self.index.segments.append((format_timestamp(segment.start), format_timestamp(segment.end)))
        self._add_checksums([self.segment_folder(segment)])
        self._write_index()

    def restore(self, database: Path) -> dict[str, bytes]:
        """Copy the ledger of the snapshot to the folder of a database; return the other files by name."""
        if not self.index.snapshot:
            return {}
        snapshot = self.folder / self.index.snapshot
        for path in (snapshot / "database").iterdir():
            shutil.copyfile(path, database / path.name)
        others = snapshot / "files"
        return {path.relative_to(others).as_posix(): path.read_bytes() for path in others.rglob("*") if path.is_file()}

    def save(self, database: Path, files: Mapping[str, bytes], *, scheduled_until: datetime, is_complete: bool) -> None:
        """Keep a copy of the ledger, and other files by name, instead of the previous ones."""
        snapshot = Path(tempfile.mkdtemp(dir=self.folder, prefix="snapshot-"))
        (snapshot / "files").mkdir()
        (snapshot / "database").mkdir()
        for path in database.glob("*.db"):
            if not _copy_database(path, snapshot / "database" / path.name):
                return  # it is changing all the time; the next call tries again
        for name, content in files.items():
            path = snapshot / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        previous = self.index.snapshot
        if previous:
            prefix = f"{previous}/"
            self.index.checksums = {
                path: digest for path, digest in self.index.checksums.items() if not path.startswith(prefix)
            }
        self.index.snapshot = snapshot.name
        self.index.scheduled_until = format_timestamp(scheduled_until)
        self.index.is_complete = is_complete
        self._add_checksums([snapshot])
        self._write_index()
        if previous:
            shutil.rmtree(self.folder / previous, ignore_errors=True)

    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def _add_checksums(self, folders: Iterable[Path]) -> None:
        for folder in folders:
            for path in folder.rglob("*"):
                if path.is_file():
                    self.index.checksums[path.relative_to(self.folder).as_posix()] = _checksum(path)

    def _write_index(self) -> None:
        partial = self.folder / f"{INDEX}.new"
        with partial.open("w") as file:
            json.dump(asdict(self.index), file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.folder / INDEX)

    def _remove_unlisted_files(self) -> None:
        """Remove what a killed demo left, and snapshots and segments that are not in the index."""
        segments = self.folder / "segments"
        segments.mkdir(exist_ok=True)
        listed = {self.segment_folder(segment) for segment in self.segments()}
        listed |= {segments, self.folder / INDEX, self.folder / "lock", self.folder / (self.index.snapshot or INDEX)}
        for path in [*self.folder.iterdir(), *segments.iterdir()]:
            if path not in listed:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def open_cache(key: str, oldest: datetime, *, is_fresh: bool = False) -> Iterator[DemoCache | None]:
    """Open a cache for one demo. Yields None if another demo uses it.

    Args:
        key: from `cache_key`. Caches with other keys that no demo uses are removed.
        oldest: if the newest hour of the cache is older, it is discarded.
        is_fresh: discard the cache.
    """
    folder = cache_folder() / key
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        if not _is_locked(lock):
            yield None
            return
        for other in cache_folder().iterdir():
            if other != folder and other.is_dir():
                _remove_unused(other)
        if is_fresh:
            (folder / INDEX).unlink(missing_ok=True)
        yield DemoCache.read(folder, oldest)


def _remove_unused(folder: Path) -> None:
    with (folder / "lock").open("w") as lock:
        if _is_locked(lock):
            shutil.rmtree(folder, ignore_errors=True)


def _is_locked(lock: Any) -> bool:
    """Lock a file. False if another process has locked it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy_database(source: Path, target: Path) -> bool:
    """Copy an SQLite database between its transactions, without a lock, which would delay them."""
    for _ in range(COPY_ATTEMPTS):
        before = source.stat().st_mtime_ns
        shutil.copyfile(source, target)
        is_stable = source.stat().st_mtime_ns == before and not source.with_name(f"{source.name}-journal").exists()
        if is_stable and _is_intact(target):
            return True
    return False


def _is_intact(database: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("PRAGMA quick_check").fetchall() == [("ok",)])
    except sqlite3.DatabaseError:
        return False
