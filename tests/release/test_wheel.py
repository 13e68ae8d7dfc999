"""The wheel in an empty environment, away from the repository, with an empty HOME and a minimal PATH."""

import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest
import requests

from gpucost.core.hours import format_timestamp
from gpucost_devstack.template import REPOSITORY
from tests.system.timeline import HOUR, Timeline

UV = REPOSITORY / ".venv" / "bin" / "uv"


def variables_of(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    (path,) = folder.glob("gpucost-*.whl")
    return path


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty environment, and return the command."""
    folder = tmp_path_factory.mktemp("installed")
    for command in (["venv", "-q", "--python", sys.executable, "."], ["pip", "install", "-q", "--python", ".", wheel]):
        subprocess.run([UV, *command], cwd=folder, check=True, capture_output=True, timeout=300)
    return folder / "bin" / "gpucost"


@pytest.fixture(scope="module")
def gpucost(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the installed command in an empty folder, which is also its HOME."""
    home = tmp_path_factory.mktemp("home")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        variables = variables_of(home)
        command = [str(program), *arguments]
        return subprocess.run(
            command, cwd=home, env=variables, capture_output=True, text=True, check=False, timeout=120
        )

    return run


def test_wheel_has_only_packages_of_the_product_and_their_files(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"gpucost", "gpucost_cli", "gpucost_devstack"}
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name]
    carried = "gpucost_devstack/repository/"
    assert {
        f"{carried}template.yaml",
        f"{carried}cluster/versions.yaml",
        f"{carried}functions/api/page/index.html",
    } <= {*names}
    assert os.stat(wheel).st_size < 3_000_000  # noqa: PTH116


def test_installed_command_attributes_an_hour(
    gpucost: Callable[..., subprocess.CompletedProcess[str]], prometheus: Callable[[str], str], tmp_path: Path
) -> None:
    timeline = Timeline(step=30)
    timeline.up()
    labels = {"node_kubernetes_io_instance_type": "g5.xlarge", "topology_kubernetes_io_zone": "us-east-1a"}
    timeline.node(capacity={"nvidia_com_gpu": 1}, labels=labels)
    timeline.pod("pod")
    settings = tmp_path / "settings.yaml"
    settings.write_text(f'clusters: [{{name: c, prometheus: {{url: "{prometheus(timeline.text())}"}}}}]\n')
    done = gpucost("attribute", "--settings", str(settings), "--hour", format_timestamp(HOUR), "--format", "json")
    assert done.returncode == 0, done.stderr
    (line,) = json.loads(done.stdout)["hours"][0]["lines"]
    assert (line["price_source"], float(line["allocated_usd"])) == ("list-price", 1.006)
    examined = gpucost("doctor", "--settings", str(settings), "--verbose")
    # The samples are older than a day, which the doctor sees.
    assert (examined.returncode, examined.stderr) == (1, "gpucost: attribution is impossible for cluster c\n")
    assert "kube_pod_container_resource_requests" in examined.stdout
    named_page = re.search(r"^collector: .* \((.*)\)$", examined.stdout, re.MULTILINE)
    assert named_page and Path(named_page[1]).is_file()


def test_installed_command_serves_a_prometheus_within_two_minutes(
    program: Path, prometheus: Callable[[str], str], tmp_path: Path
) -> None:
    """Without settings, AWS, Java and npm: the figures of the last day on the terminal, in the API and on the page."""
    timeline = Timeline(step=30)
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 1})
    timeline.pod("pod", namespace="bu-a")
    command = [str(program), "serve", "--prometheus", prometheus(timeline.text()), "--port", "0", "--days", "1"]
    started = time.monotonic()
    with subprocess.Popen(
        command, cwd=tmp_path, env=variables_of(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None and process.stdout is not None
            (url,) = re.findall(r"at (http://127\.0\.0\.1:\d+) until", process.stderr.readline())
            rows = takewhile(lambda line: not line.startswith("open "), iter(process.stdout.readline, ""))
            (row,) = [cells for line in rows if (cells := line.split())[:1] == ["bu-a"]]
            assert time.monotonic() - started < 120
            assert float(row[1]) >= 3
            assert '<div id="page">' in requests.get(url, timeout=30).text
            units = requests.get(f"{url}/v1/business-units", timeout=30).json()["rows"]
            assert [unit["business_unit"] for unit in units] == ["bu-a"]
        finally:
            process.kill()
    assert (tmp_path / ".local/share/gpucost").is_dir()


def test_installed_command_carries_manifests_and_schema(
    gpucost: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert json.loads(gpucost("settings", "schema").stdout)["properties"]["clusters"]
    settings = tmp_path / "settings.yaml"
    settings.write_text('clusters: [{name: c, prometheus: {url: "http://127.0.0.1:9090"}}]')
    folder = tmp_path / "out"
    done = gpucost("manifests", "render", "--settings", str(settings), "--for", "prometheus", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert list(folder.rglob("*.yaml"))


def test_notes_of_the_installed_command_name_pages_that_exist(
    gpucost: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text('clusters: [{name: c, prometheus: {url: "http://a"}}]\nalerts: {receivers: [{type: email}]}\n')
    named_page = re.search(r"(\S+) has rules to copy", gpucost("settings", "check", str(settings)).stdout)
    assert named_page and Path(named_page[1]).is_file()


def test_demo_without_its_extra_names_the_extra(gpucost: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = gpucost("demo", "--once")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "'gpucost[demo]', or from a wheel" in done.stderr


def test_init_without_a_terminal_names_the_option(gpucost: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = gpucost("init")
    assert done.returncode == 2
    assert "--" in done.stderr
