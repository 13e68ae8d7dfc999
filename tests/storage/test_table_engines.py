"""Every engine of the ledger's table gives the same results. The oracle is Amazon's DynamoDB Local."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.core.errors import ConflictError, InvalidInputError, SourceError
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ports import Table
from gpucost.storage.sqlite_table import FILE, FORMAT_VERSION, SqliteTable
from gpucost.storage.table import (
    MISSING,
    PRESENT,
    AllOf,
    Before,
    Between,
    Comparison,
    Item,
    MissingOr,
    SortKeys,
    StartsWith,
    equals,
    key,
)
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table

FUTURE, PAST = int(time.time()) + 10**6, 1
SORT_KEYS = ("", "2", "2026", "2026-11#0000", "2026-11#0001", "2026-12", "é", "z", "\U0001f600")
partitions = st.sampled_from(["C#a#hours", "C#b#hours"])
sort_keys = st.sampled_from(SORT_KEYS[1:])
numbers = st.integers(-2, 12)
attributes = st.fixed_dictionaries(
    {},
    optional={
        "n": numbers.map(lambda number: {"N": str(number)}) | st.just({"S": "2"}),
        "r": st.sampled_from(["", "2", "a", "é"]).map(lambda string: {"S": string}),
        "b": st.binary(max_size=5).map(lambda data: {"B": data}),
        "l": st.lists(numbers.map(lambda number: {"N": str(number)}), max_size=2).map(lambda members: {"L": members}),
        "f": st.booleans().map(lambda flag: {"BOOL": flag}),
        "expires_at": st.sampled_from([FUTURE, PAST]).map(lambda at: {"N": str(at)}),
    },
)
items = st.builds(lambda pk, sk, others: {**key(pk, sk), **others}, partitions, sort_keys, attributes)
comparisons = st.builds(
    Comparison,
    st.sampled_from(["n", "r", "expires_at"]),
    st.sampled_from(["=", "<>", "<", "<="]),
    numbers | st.sampled_from(["", "2", "a", "é"]),
)
conditions = (
    st.sampled_from([MISSING, PRESENT])
    | comparisons
    | comparisons.map(MissingOr)
    | st.tuples(comparisons, st.sampled_from(["a", "é"]).map(lambda string: equals("s", string))).map(AllOf)
)
key_ranges = (
    st.none()
    | st.tuples(sort_keys, sort_keys).map(lambda ends: Between(*sorted(ends, key=str.encode)))
    | st.sampled_from(["2", "2026", "2026-11#", "é", "\U0001f600"]).map(StartsWith)
    | sort_keys.map(Before)
)


def unique(puts: Sequence[tuple[Item, Any]]) -> list[tuple[Item, Any]]:
    """Drop writes of a key that another write has; DynamoDB refuses them."""
    return list({(item["pk"]["S"], item["sk"]["S"]): (item, condition) for item, condition in puts}.values())


writes = st.one_of(
    st.tuples(st.just("put"), items, conditions),
    st.tuples(
        st.just("transact"), st.lists(st.tuples(items, st.none() | conditions), min_size=1, max_size=4).map(unique)
    ),
    st.tuples(st.just("delete"), items, st.none() | conditions),
    st.tuples(st.just("check"), st.lists(st.tuples(items, conditions), min_size=2, max_size=2).map(unique)),
    st.tuples(st.just("put_all"), st.lists(items.map(lambda item: (item, None)), min_size=1, max_size=4).map(unique)),
    st.tuples(st.just("delete_all"), items),
)
reads = st.tuples(partitions, key_ranges, st.sampled_from([0, 0, 1, 3]), st.booleans())


def key_of(item: Item) -> Item:
    return key(item["pk"]["S"], item["sk"]["S"])


def write(table: Table, step: tuple[Any, ...]) -> str:
    """Apply a step, and return what the engine answered."""
    kind, argument, *rest = step
    try:
        if kind == "put":
            table.put(argument, rest[0])
        elif kind == "transact":
            table.transact(argument)
        elif kind == "delete":
            table.transact([], deletes=[(key_of(argument), rest[0])])
        elif kind == "check":
            (item, _), *checked = argument
            table.transact([(item, None)], checks=[(key_of(other), condition) for other, condition in checked])
        elif kind == "put_all":
            table.put_all([item for item, _ in argument])
        else:
            table.delete_all([key_of(argument)])
    except ConflictError:
        return "conflict"
    return "written"


def read(table: Table, question: tuple[str, SortKeys | None, int, bool]) -> list[Item]:
    pk, between, limit, newest_first = question
    return [without_writer(item) for item in table.query(pk, between, limit=limit, newest_first=newest_first)]


def without_writer(item: Item) -> Item:
    return {name: attribute for name, attribute in item.items() if name != "w"}


@pytest.fixture
def folder_table(tmp_path: Path) -> Iterator[SqliteTable]:
    with SqliteTable(tmp_path / "ledger") as table:
        yield table


@pytest.fixture(scope="module")
def new_tables(dynamodb_url: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], tuple[Table, SqliteTable]]:
    client = local_client("dynamodb", dynamodb_url)

    def make() -> tuple[Table, SqliteTable]:
        name = f"ledger-{uuid4()}"
        create_table(client, name)
        return DynamoDBTable(client, name), SqliteTable(tmp_path_factory.mktemp("ledger"))

    return make


@pytest.mark.tools  # moto refuses comparisons of numbers with text, which DynamoDB answers
@settings(max_examples=60)
@given(steps=st.lists(writes, max_size=25), questions=st.lists(reads, min_size=1, max_size=6))
def test_engines_answer_the_same(
    new_tables: Callable[[], tuple[Table, SqliteTable]], steps: list[Any], questions: list[Any]
) -> None:
    dynamodb, sqlite = new_tables()
    with sqlite:
        for step in steps:
            assert write(sqlite, step) == write(dynamodb, step), step
        for question in questions:
            assert read(sqlite, question) == read(dynamodb, question), question
        for pk in ("C#a#hours", "C#b#hours"):
            for sk in SORT_KEYS[1:]:
                stored = dynamodb.get(pk, sk)
                assert sqlite.get(pk, sk) == (stored and without_writer(stored))


def test_items_are_listed_by_key_without_expired_ones(folder_table: SqliteTable) -> None:
    stored: list[Item] = [{**key(f"p{number % 3}", f"{number:05d}"), "b": {"B": b"x"}} for number in range(2_500)]
    folder_table.put_all([*stored, {**key("p0", "expired"), "expires_at": {"N": "1"}}])
    assert folder_table.partitions() == ["p0", "p1", "p2"]
    listed = [item for partition in folder_table.partitions() for item in folder_table.items(partition)]
    assert listed == sorted(stored, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))
    assert folder_table.delete_expired() == 1
    assert folder_table.delete_expired() == 0


def test_folder_in_use_is_refused(tmp_path: Path) -> None:
    with (
        SqliteTable(tmp_path),
        pytest.raises(InvalidInputError, match=f"another process uses the ledger in {tmp_path}. Stop it, or choose"),
    ):
        SqliteTable(tmp_path)
    SqliteTable(tmp_path).close()


def test_newer_format_is_refused(tmp_path: Path) -> None:
    SqliteTable(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.close()
    with pytest.raises(
        InvalidInputError, match="has format 2, which a newer release wrote; this release reads up to 1"
    ):
        SqliteTable(tmp_path)


def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    with pytest.raises(InvalidInputError, match=r"is not a ledger of gpucost. Choose another folder"):
        SqliteTable(tmp_path)


def test_damaged_database_is_refused(tmp_path: Path) -> None:
    with SqliteTable(tmp_path) as table:
        table.put_all([{**key("p", f"{number}"), "b": {"B": bytes(1_000)}} for number in range(200)])
    path = tmp_path / FILE
    data = bytearray(path.read_bytes())
    data[8_192:40_000] = os.urandom(40_000 - 8_192)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"is damaged .*Restore the folder from a backup, or choose another"):
        SqliteTable(tmp_path)
    path.write_bytes(b"no database" * 1_000)
    with pytest.raises(SourceError, match="is damaged"):
        SqliteTable(tmp_path)


def test_path_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("")
    with pytest.raises(InvalidInputError, match="cannot be used for the ledger: File exists"):
        SqliteTable(tmp_path / "ledger")


WRITER = """
import sys
from pathlib import Path
from gpucost.storage.table import MISSING, equals
from gpucost.storage.sqlite_table import SqliteTable
from gpucost.storage.table import key

table = SqliteTable(Path(sys.argv[1]))
for number in range(10_000):
    condition = equals("n", number - 1) if number else MISSING
    head = {**key("p", "head"), "n": {"N": str(number)}}
    table.transact([(head, condition), (key("p", f"{number:06d}"), MISSING)])
    print(number, flush=True)
"""


@pytest.mark.tools
def test_killed_writer_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """What was reported as written is there, and head and items agree: no transaction is half there."""
    for kill_after in (0, 3, 17):
        folder = tmp_path / str(kill_after)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        with writer.stdout as reported:
            while int(reported.readline()) < kill_after:
                pass
            writer.send_signal(signal.SIGKILL)
            written = kill_after + sum(1 for line in reported if line.endswith("\n"))
        writer.wait()
        with SqliteTable(folder) as table:
            *numbered, head = table.query("p")
            last = int(head["n"]["N"])
            assert last >= written
            assert [item["sk"]["S"] for item in numbered] == [f"{number:06d}" for number in range(last + 1)]
