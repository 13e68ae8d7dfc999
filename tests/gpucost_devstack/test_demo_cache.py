"""What a demo keeps: complete states only, whatever ends the demo, and for one demo at a time."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpucost.core.hours import HOUR
from gpucost_devstack.demo_cache import DemoCache, cache_folder, cache_key, open_cache
from gpucost_devstack.metrics_segment import Segment, segments_of
from gpucost_devstack.template import REPOSITORY

DAY = datetime(2026, 11, 20, tzinfo=UTC)
SEGMENT = Segment(DAY, DAY + 24 * HOUR)


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def write_database(folder: Path, row: int) -> None:
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / "local.db")) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS rows (row)")
        connection.execute("INSERT INTO rows VALUES (?)", (row,))


def rows_of(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "local.db")) as connection:
        return [row for (row,) in connection.execute("SELECT row FROM rows ORDER BY row")]


def add_segment(cache: DemoCache, segment: Segment = SEGMENT) -> None:
    folder = cache.segment_folder(segment)
    folder.mkdir()
    (folder / "chunks").write_bytes(b"samples")
    cache.add_segment(segment)


def fill(cache: DemoCache, database: Path) -> None:
    add_segment(cache)
    write_database(database, 1)
    cache.save(database, {"exports/rows": b"row"}, scheduled_until=SEGMENT.end, is_complete=True)


def test_next_demo_restores_the_kept_state(caches: Path) -> None:
    with open_cache("key", DAY) as cache:
        assert cache is not None
        fill(cache, caches / "database")
    with open_cache("key", DAY) as cache:
        assert cache is not None
        assert cache.segments() == [SEGMENT]
        assert (cache.segment_folder(SEGMENT) / "chunks").read_bytes() == b"samples"
        restored = caches / "restored"
        restored.mkdir()
        assert cache.restore(restored) == {"exports/rows": b"row"}
        assert rows_of(restored) == [1]
        assert (cache.index.is_complete, cache.index.scheduled_until) == (True, "2026-11-21T00:00:00Z")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_bit(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def replace_by_list(path: Path) -> None:
    path.write_text("[]")


@pytest.mark.parametrize("damage", [Path.unlink, cut_short, flip_bit])
@pytest.mark.parametrize("pattern", ["segments/*/chunks", "snapshot-*/database/local.db", "snapshot-*/files/exports/*"])
def test_cache_with_a_damaged_file_is_discarded(caches: Path, damage: Callable[[Path], None], pattern: str) -> None:
    with open_cache("key", DAY) as cache:
        assert cache is not None
        fill(cache, caches / "database")
        (path,) = cache.folder.glob(pattern)
    damage(path)
    with open_cache("key", DAY) as cache:
        assert cache is not None
        assert (cache.segments(), cache.index.snapshot) == ([], "")
        fill(cache, caches / "database")
    with open_cache("key", DAY) as cache:
        assert cache is not None
        assert cache.segments() == [SEGMENT]


@pytest.mark.parametrize("damage", [Path.unlink, cut_short, replace_by_list])
def test_cache_with_a_damaged_index_is_discarded(caches: Path, damage: Callable[[Path], None]) -> None:
    with open_cache("key", DAY) as cache:
        assert cache is not None
        fill(cache, caches / "database")
        path = cache.folder / "index.json"
    damage(path)
    with open_cache("key", DAY) as cache:
        assert cache is not None
        assert (cache.segments(), cache.index.snapshot) == ([], "")


@pytest.mark.parametrize(("oldest", "is_fresh"), [(SEGMENT.end + HOUR, False), (DAY, True)])
def test_old_cache_and_fresh_start_discard_the_kept_state(caches: Path, oldest: datetime, is_fresh: bool) -> None:
    with open_cache("key", DAY) as cache:
        assert cache is not None
        fill(cache, caches / "database")
    with open_cache("key", oldest, is_fresh=is_fresh) as cache:
        assert cache is not None
        assert (cache.segments(), cache.index.snapshot) == ([], "")


def test_second_demo_gets_no_cache_and_leaves_the_first(caches: Path) -> None:
    with open_cache("key", DAY) as cache:
        assert cache is not None
        fill(cache, caches / "database")
        with open_cache("key", DAY) as second:
            assert second is None
        with open_cache("other", DAY) as third:
            assert third is not None
        assert (cache.segment_folder(SEGMENT) / "chunks").exists()


def test_caches_of_other_versions_are_removed(caches: Path) -> None:
    with open_cache("old", DAY) as cache:
        assert cache is not None
        fill(cache, caches / "database")
    with open_cache("new", DAY):
        assert [path.name for path in cache_folder().iterdir()] == ["new"]


SAVE_WITHOUT_END = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from gpucost_devstack.demo_cache import open_cache
from tests.gpucost_devstack.test_demo_cache import DAY, SEGMENT, Segment, HOUR, add_segment, write_database
database = Path(sys.argv[1])
with open_cache("key", DAY) as cache:
    add_segment(cache)
    for number in range(10**6):
        write_database(database, number)
        files = {"number": str(number).encode(), "large": bytes(10**6)}
        cache.save(database, files, scheduled_until=DAY, is_complete=False)
        print(number, flush=True)
"""


@pytest.mark.parametrize("saves", range(1, 6))
def test_killed_demo_leaves_a_complete_state(caches: Path, saves: int) -> None:
    database = caches / "database"
    command = [sys.executable, "-c", SAVE_WITHOUT_END, str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=dict(os.environ)) as process:
        assert process.stdout is not None
        for _ in range(saves):
            last = int(process.stdout.readline())
        time.sleep(saves / 1000)  # so that each case ends in another part of a save
        process.send_signal(signal.SIGKILL)
    with open_cache("key", DAY) as cache:
        assert cache is not None
        assert cache.segments() == [SEGMENT]
        restored = caches / "restored"
        restored.mkdir()
        number = int(cache.restore(restored)["number"])
        assert number >= last
        assert rows_of(restored) == list(range(number + 1))
        assert len(list(cache.folder.glob("snapshot-*"))) == 1
    shutil.rmtree(database)


def test_changed_settings_scale_and_template_have_other_keys(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("Resources: {}")
    keys = {cache_key({}, 1), cache_key({"clusters": []}, 1), cache_key({}, 2), cache_key({}, 1, template)}
    assert len(keys) == 4
    assert cache_key({}, 1) in keys


def test_segments_end_with_their_day_and_at_gaps() -> None:
    hours = [DAY + i * HOUR for i in (20, 21, 22, 23, 24, 25, 30)]
    assert [(segment.start - DAY, segment.end - DAY) for segment in segments_of(hours)] == [
        (timedelta(hours=20), timedelta(hours=24)),
        (timedelta(hours=24), timedelta(hours=26)),
        (timedelta(hours=30), timedelta(hours=31)),
    ]
