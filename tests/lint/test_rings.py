"""The rings of tests select as documented, and detect programs that they may not start."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import rings
from tests.cases import VARIABLE


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (["/usr/bin/prometheus", "--config.file=x"], "Prometheus"),
        (["python", "-I", "/src/gpucost_devstack/dynamodb_server.py", "lib"], "DynamoDB Local"),
        (
            ["/site-packages/playwright/driver/node", "/site-packages/playwright/driver/package/cli.js", "run-driver"],
            "browser",
        ),
        (["env", "--default-signal=INT", "/src/.venv/bin/gpucost", "demo", "--port", "1"], "demo"),
        (["/src/.venv/bin/gpucost", "report", "--stack", "demo-stack"], ""),
        (["/usr/bin/prometheus-alertmanager"], ""),
        (["/usr/bin/promtool", "tsdb"], ""),
    ],
)
def test_expensive_programs_are_counted_by_kind(command: list[str], program: str) -> None:
    starts = Counter[str]()
    rings.count_starts(starts)("subprocess.Popen", (command[0], command, None, None))
    assert starts == ({program: 1} if program else {})


def test_program_that_starts_more_often_than_recorded_is_an_excess() -> None:
    most = {"Prometheus": 2, "browser": 1}
    assert rings.excesses(Counter({"Prometheus": 2}), most) == []
    browser, demo = rings.excesses(Counter({"Prometheus": 1, "browser": 2, "demo": 1}), most)
    assert browser.startswith("browser was started 2 times, 1 allowed.")
    assert demo.startswith("demo was started 1 times, 0 allowed.")


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("subprocess.Popen", ("/bin/true", ["true"], None, None)),
        ("os.posix_spawn", ("/bin/true", ["true"], {})),
        ("os.fork", ()),
        ("os.system", (b"true",)),
        ("socket.connect", (None, ("192.0.2.1", 443))),
        ("socket.connect", (None, ("example.com", 443))),
    ],
)
def test_unit_ring_refuses_processes_and_other_machines(event: str, arguments: tuple[object, ...]) -> None:
    starts = Counter[str]()
    with pytest.raises(RuntimeError, match=r"may not do this: .* mark the test with pytest\.mark\.tools$"):
        rings.refuse_tools(starts)(event, arguments)
    (sentence,) = rings.excesses(starts, rings.allowed("unit"))
    assert event in sentence


def test_examples_are_limited_once_although_a_process_has_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)

    @settings(max_examples=50)
    @given(st.none())
    def property_test(_: None) -> None:
        pass

    for _ in range(2):
        rings.limit_examples(property_test)
    assert vars(property_test)["_hypothesis_internal_use_settings"].max_examples == 10


@pytest.mark.parametrize("address", [("127.0.0.1", 80), ("::1", 80, 0, 0), ("localhost", 80), "/run/socket"])
def test_unit_ring_may_connect_to_this_machine(address: object) -> None:
    starts = Counter[str]()
    rings.refuse_tools(starts)("socket.connect", (None, address))
    assert not starts


def test_no_ring_but_these_may_start_programs() -> None:
    assert rings.allowed("unit") == {}
    assert (
        rings.allowed("test").keys()
        == rings.allowed("nightly").keys()
        == {"Prometheus", "DynamoDB Local", "browser", "demo"}
    )
