"""Several demos on one machine. Each has its own record, which is removed however the demo ends."""

import fcntl
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost_devstack.demo_records import find_demo, records_folder, running_demos
from gpucost_devstack.template import REPOSITORY
from tests.system.demo_record import another_demo


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_single_demo_is_selected_without_port(folder: Path) -> None:
    with another_demo(folder, 8080) as process:
        demo = find_demo("local")
        assert (demo.port, demo.pid, demo.endpoint) == (8080, process.pid, "http://127.0.0.1:9")
        assert find_demo("local:8080") == demo


def test_several_demos_require_a_port(folder: Path) -> None:
    with another_demo(folder, 8081), another_demo(folder, 8080):
        with pytest.raises(InvalidInputError, match=r"2 demos .* --stack: local:8080, local:8081$"):
            find_demo("local")
        assert find_demo("local:8081").port == 8081
        for unknown in ("local:9", "local:", "local:x", "local:08081"):
            with pytest.raises(InvalidInputError, match="is not a running demo; running: local:8080, local:8081"):
                find_demo(unknown)


def test_stopping_a_demo_keeps_records_of_others(folder: Path) -> None:
    with another_demo(folder, 8080):
        with another_demo(folder, 8081):
            pass
        assert find_demo("local").port == 8080


def test_record_of_a_killed_demo_is_removed(folder: Path) -> None:
    with another_demo(folder, 8080), another_demo(folder, 8081) as killed:
        killed.kill()
        killed.wait()
        assert len(list(records_folder().glob("*.json"))) == 2
        assert find_demo("local").port == 8080
        assert len(list(records_folder().glob("*.json"))) == 1
    with pytest.raises(GpuCostError, match="no demo is running"):
        find_demo("local")
    assert list(records_folder().iterdir()) == []


def test_demo_on_port_of_ended_demo_is_selected(folder: Path) -> None:
    with another_demo(folder, 8080) as killed:
        killed.kill()
        killed.wait()
        with another_demo(folder, 8080) as living:
            assert [demo.pid for demo in running_demos()] == [living.pid]
            assert [demo.pid for demo in running_demos()] == [living.pid]


def test_concurrent_demos_and_commands_lose_no_record(folder: Path) -> None:
    reader = "from gpucost_devstack.demo_records import running_demos\nwhile True: running_demos()"
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    readers = [
        subprocess.Popen([sys.executable, "-c", reader], cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        with ExitStack() as demos:
            for port in range(8000, 8006):
                demos.enter_context(another_demo(folder, port))
                with another_demo(folder, port + 100) as killed:
                    killed.kill()
                    killed.wait()
            assert [demo.port for demo in running_demos()] == list(range(8000, 8006))
        assert all(process.poll() is None for process in readers)
    finally:
        for process in readers:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("text", ['{"port": 8081, "address": "http://127.0.0.1:9"}', "8081", ""])
def test_demo_of_another_version_is_ignored(folder: Path, text: str) -> None:
    with another_demo(folder, 8080):
        other = records_folder() / "8081-other.json"
        with other.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(text)
            file.flush()
            assert find_demo("local").port == 8080
            assert other.exists()
