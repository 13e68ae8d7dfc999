"""The wheel in an empty environment, away from the repository, with an empty HOME and a minimal PATH."""

import json
import logging
import os
import re
import subprocess
import sys
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests

from gpucost.core.hours import floor_hour, format_timestamp
from gpucost_devstack.template import REPOSITORY
from tests.kernel_clock import kernel_time
from tests.recorded_hour import recording
from tests.recorded_hour.recording import read_series, running_variants, unpack
from tests.recorded_hour.transforms import DCGM, GPU_NODES, KSM, NEURON, stock
from tests.system.timeline import Timeline, steady_pod

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
    hour = floor_hour(kernel_time()) - timedelta(hours=5)
    timeline = Timeline(step=30, base=hour)
    timeline.up()
    labels = {"node_kubernetes_io_instance_type": "g5.xlarge", "topology_kubernetes_io_zone": "us-east-1a"}
    timeline.node(capacity={"nvidia_com_gpu": 1}, labels=labels)
    timeline.pod("pod")
    settings = tmp_path / "settings.yaml"
    settings.write_text(f'clusters: [{{name: c, prometheus: {{url: "{prometheus(timeline.text())}"}}}}]\n')
    done = gpucost("attribute", "--settings", str(settings), "--hour", format_timestamp(hour), "--format", "json")
    assert done.returncode == 0, done.stderr
    (line,) = json.loads(done.stdout)["hours"][0]["lines"]
    assert (line["price_source"], float(line["allocated_usd"])) == ("list-price", 1.006)
    examined = gpucost("doctor", "--settings", str(settings), "--verbose")
    # The samples are older than a day, which the doctor sees.
    assert (examined.returncode, examined.stderr) == (1, "gpucost: attribution is impossible for cluster c\n")
    assert "kube_pod_container_resource_requests" in examined.stdout
    named_page = re.search(r"^collector: .* \((.*)\)$", examined.stdout, re.MULTILINE)
    assert named_page and Path(named_page[1]).is_file()


class Served(NamedTuple):
    """What the installed command serves, and after how many seconds it had printed its first figures."""

    url: str
    first_figures: Mapping[str, Sequence[str]]
    """The cells of the rows by unit."""
    seconds: float

    def rows(self, path: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = requests.get(f"{self.url}/v1/{path}", timeout=60).json()["rows"]
        return rows


@pytest.fixture
def serve(program: Path, tmp_path: Path) -> Iterator[Callable[[str], Served]]:
    """Run `gpucost serve --prometheus` without settings, AWS, Java and npm, until the last day is in its table."""
    with ExitStack() as running:

        def run(prometheus_url: str) -> Served:
            command = [str(program), "serve", "--prometheus", prometheus_url, "--port", "0", "--days", "1"]
            started = time.monotonic()
            process = running.enter_context(
                subprocess.Popen(
                    command,
                    cwd=tmp_path,
                    env=variables_of(tmp_path),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            running.callback(process.kill)
            assert process.stderr is not None and process.stdout is not None
            (url,) = re.findall(r"at (http://127\.0\.0\.1:\d+) until", process.stderr.readline())
            lines = takewhile(lambda line: not line.startswith("open "), iter(process.stdout.readline, ""))
            rows = {cells[0]: cells for line in lines if (cells := line.split())}
            seconds = time.monotonic() - started
            logging.getLogger(__name__).info("first figures after %.0f s", seconds)
            return Served(url, rows, seconds)

        yield run


def test_installed_command_serves_a_prometheus(
    serve: Callable[[str], Served], prometheus: Callable[[str], str], tmp_path: Path
) -> None:
    """The figures of the last day on the terminal, in the API and on the page."""
    timeline = Timeline(step=30, base=floor_hour(kernel_time()) - timedelta(hours=5))
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 1})
    timeline.pod("pod", namespace="bu-a")
    served = serve(prometheus(timeline.text()))
    assert float(served.first_figures["bu-a"][1]) >= 3
    assert '<div id="page">' in requests.get(served.url, timeout=30).text
    assert [unit["business_unit"] for unit in served.rows("business-units")] == ["bu-a"]
    assert (tmp_path / ".local/share/gpucost").is_dir()


@pytest.mark.parametrize("labels", ["as-rendered", "stock"])
def test_installed_command_serves_the_recorded_cluster_within_two_minutes(
    serve: Callable[[str], Served], tmp_path: Path, labels: str
) -> None:
    """An hour of a real control plane, moved to the last whole hour: what its namespaces really held.

    A stock kube-prometheus-stack exports no labels of nodes.
    """
    # An hour is attributed some minutes after its end.
    shift = floor_hour(kernel_time() - timedelta(minutes=10)) - recording.HOUR_END
    transform = stock if labels == "stock" else lambda series: [series]
    recorded = (series.later(shift) for series in read_series(unpack(tmp_path), (KSM, DCGM, NEURON)))
    with running_variants(recorded, {recording.CLUSTER: transform}) as url:
        served = serve(url)
        assert served.seconds < 120
        held, tolerance = defaultdict[str, float](float), defaultdict[str, float](float)
        for truth in recording.true_pods().values():
            held[truth.namespace] += truth.gpu_hours
            tolerance[truth.namespace] += truth.gpus * truth.edges * recording.SCRAPE
        start = recording.HOUR + shift
        hour = f"start={format_timestamp(start)}&end={format_timestamp(start + timedelta(hours=1))}"
        rows = {row["business_unit"]: row for row in served.rows(f"business-units?{hour}")}
        assert {unit for unit, gpu_hours in held.items() if gpu_hours} == rows.keys()
        for unit, row in rows.items():
            assert abs(float(row["allocated_gpu_hours"]) - held[unit]) <= tolerance[unit] + 0.001, unit
        assert {node["node"]: node["instance_type"] for node in served.rows(f"nodes?{hour}")} == GPU_NODES


def test_installed_command_shows_ten_minutes_of_samples(
    serve: Callable[[str], Served], prometheus: Callable[[str], str]
) -> None:
    """A Prometheus that was installed ten minutes ago."""
    first = kernel_time().replace(second=0, microsecond=0) - timedelta(minutes=10)
    served = serve(prometheus(steady_pod(first, 10).text()))
    assert served.seconds < 120
    assert float(served.first_figures["bu-a"][1]) == pytest.approx(1 / 6, abs=0.05)


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
