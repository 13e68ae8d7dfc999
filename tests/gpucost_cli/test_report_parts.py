"""`gpucost report` adds up the parts of a large report, exactly."""

import json
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gpucost.core.amounts import Costs
from gpucost_cli import report

NAMES = Costs.names()
HEADER = f"start,end,workload,{','.join(NAMES)}"


def row(workload: str, usd: str | None, hours: str) -> dict[str, Any]:
    figures: dict[str, Any] = {name: None if name.endswith(("_usd", "_kwh", "_kg")) else 0 for name in NAMES}
    figures |= {"allocated_gpu_hours": float(hours), "allocated_usd": None if usd is None else float(usd)}
    return {"start": "2026-09-01T00:00:00Z", "end": "2026-11-20T00:00:00Z", "group": {"workload": workload}, **figures}


PAGES = [
    [row("a", "4.1", "2"), row("b", "0.1", "1")],
    [row("b", "7.2", "3"), row("c", None, "5")],
    [row("c", "2", "1")],
]


def csv_page(rows: list[dict[str, Any]]) -> str:
    lines = [
        ",".join(["s", "e", row["group"]["workload"], *("" if row[name] is None else str(row[name]) for name in NAMES)])
        for row in rows
    ]
    return "\r\n".join([HEADER, *lines, ""])


@pytest.fixture
def api() -> Iterator[str]:
    """An API that answers in three parts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            number = int(query.get("cursor", ["0"])[0])
            cursor = f"{number + 1}" if number + 1 < len(PAGES) else None
            is_csv = query.get("format") == ["csv"]
            document = {"rows": PAGES[number], "row_count": None, "cursor": cursor}
            body = (csv_page(PAGES[number]) if is_csv else json.dumps(document)).encode()
            self.send_response(200)
            if is_csv and cursor:
                self.send_header("X-Next-Cursor", cursor)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{web.server_port}"
        finally:
            web.shutdown()
            thread.join()


def test_rows_of_all_parts_are_added_up_in_the_order_of_the_request(
    api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report.show_costs(stack=None, api=api, parameters={"sort": "-allocated_usd"}, output_format="json")
    document = json.loads(capsys.readouterr().out, parse_float=Decimal)
    rows = [(row["group"]["workload"], row["allocated_usd"], row["allocated_gpu_hours"]) for row in document["rows"]]
    assert rows == [("b", Decimal("7.3"), 4), ("a", Decimal("4.1"), 2), ("c", 2, 6)]
    assert (document["row_count"], document["cursor"]) == (3, None)
    assert document["rows"][0]["energy_kwh"] is None


def test_csv_of_all_parts_has_a_row_for_each_group(api: str, capsys: pytest.CaptureFixture[str]) -> None:
    report.show_costs(stack=None, api=api, parameters={}, output_format="csv")
    header, *lines = capsys.readouterr().out.splitlines()
    assert header == HEADER
    position = HEADER.split(",").index("allocated_usd")
    amounts = {line.split(",")[2]: Decimal(line.split(",")[position]) for line in lines}
    assert amounts == {"a": Decimal("4.1"), "b": Decimal("7.3"), "c": 2}
