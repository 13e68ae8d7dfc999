"""Cold starts of each function as built by `sam build`, compared with an empty handler with a boto3 client.

From the start of the process until the first event is handled: the interpreter, the imports, the first clients, and
what the event asks of DynamoDB, SQS and SNS (moto, before the first settings are pushed: the least that a function
does). The empty handler only creates the client that all of them need. A second one also imports Powertools and
pydantic. They use the same Python and layers, in turns. Only the processor time of the process counts, so other work on
the machine has no effect. From a snapshot, the API starts after its imports. Lambda's time to restore a snapshot can
only be measured in Lambda. `--imports FUNCTION` lists the slowest imports of one.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

from benchmarks.figures import Figure, against, run_process, stand_alone
from gpucost_devstack.artefacts import LAYERS, function_entry, sam_build
from gpucost_devstack.aws import client_environment, create_stack, running_aws
from gpucost_devstack.functions import WORKER
from gpucost_devstack.template import REPOSITORY

EVENTS = {
    "DispatchFunction": "schedule",
    "AlertFunction": "tick",
    "PricesFunction": "prices",
    "ExportFunction": "export",
    "RecommendFunction": "recommend",
    "AttributeFunction": "hours",
    "ApiFunction": "api-costs",
}
AIMS = {"AttributeFunction": 1.85, "DispatchFunction": 1.55, "ApiFunction": 2.15}
SNAPSHOT_AIM = 0.05
QUIET = {"POWERTOOLS_LOG_LEVEL": "CRITICAL"}
SNAPSHOT = {**QUIET, "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start"}
PACKAGES = "import pydantic\nfrom aws_lambda_powertools import Logger, Metrics\n"
MODEL = "class Model(pydantic.BaseModel):\n    one: int\n"
EMPTY = "import boto3\nclient = boto3.client('dynamodb')\ndef handler(event, context):\n    return {}\n"


class Start(NamedTuple):
    """Processor seconds of a process that imports `app` and handles an event."""

    whole: float
    after_import: float


def start(path: list[Path], event: Path, environment: Mapping[str, str]) -> Start:
    """Start a process for one event."""
    with event.open() as file:
        inputs = file.read().replace("\n", " ") + "\n"
    command = f"printf '%s' \"$EVENT\" | exec {sys.executable} -I -S -B {WORKER} app.handler {' '.join(map(str, path))}"
    usage = run_process(["/bin/sh", "-c", command], {**environment, "EVENT": inputs, "PATH": os.environ["PATH"]})
    answers = [json.loads(line) for line in usage.output.splitlines()]
    if "error" in answers[-1]:
        raise RuntimeError(f"{event.stem}: {answers[-1]['error']}")
    imported, handled = (answer["processor_seconds"] for answer in answers)
    return Start(handled, handled - imported)


def size(folder: Path, *, zipped: bool) -> float:
    """Megabytes of the deployed packages."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    if not zipped:
        return sum(path.stat().st_size for path in files) / 1e6
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        with ZipFile(file, "w", ZIP_DEFLATED) as archive:
            for path in files:
                archive.write(path, path.relative_to(folder))
        return Path(file.name).stat().st_size / 1e6


def measure(built: Path, rounds: int) -> list[Figure]:
    """Cold starts of every function and the empty handler, in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in EVENTS}
    floor: list[float] = []
    restored: list[float] = []
    with_named: list[float] = []
    with running_aws() as endpoint, tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as named:
        deployed = create_stack(endpoint, "http://127.0.0.1:1", {})
        (Path(empty) / "app.py").write_text(EMPTY)
        (Path(named) / "app.py").write_text(PACKAGES + MODEL + EMPTY)
        events = REPOSITORY / "events"
        for number in range(rounds + 1):
            bare, with_packages = (
                start(
                    [Path(process), built / "DependenciesLayer" / "python"],
                    events / "schedule.json",
                    client_environment(endpoint),
                )
                for process in (empty, named)
            )
            took = {
                name: start(
                    function_entry(built, name)[1],
                    events / f"{event}.json",
                    {**deployed.environments[name], **client_environment(endpoint), **QUIET},
                )
                for name, event in EVENTS.items()
            }
            of_snapshot = start(
                function_entry(built, "ApiFunction")[1],
                events / "api-costs.json",
                {**deployed.environments["ApiFunction"], **client_environment(endpoint), **SNAPSHOT},
            )
            if number:  # the first warms the disk
                floor.append(bare.whole)
                with_named.append(with_packages.whole)
                restored.append(of_snapshot.after_import)
                for name, times in took.items():
                    seconds[name].append(times.whole)
    return [
        against("an empty handler with Powertools' logger and metrics and a pydantic model", with_named, floor, None),
        *(
            against(f"{name}: processor time to its first event handled", took_, floor, AIMS.get(name))
            for name, took_ in seconds.items()
        ),
        against(
            "ApiFunction from a snapshot: processor time to its first event handled", restored, floor, SNAPSHOT_AIM
        ),
    ]


def imports(built: Path, name: str, most: int = 25) -> list[tuple[float, str]]:
    """The slowest imports of a function, each without what it imports itself: milliseconds, module."""
    code = f"import sys; sys.path[:0] = {[str(folder) for folder in function_entry(built, name)[1]]!r}; import app"
    environment = {"GPUCOST_TABLE": "t", "POWERTOOLS_SERVICE_NAME": "x", "POWERTOOLS_METRICS_NAMESPACE": "GpuCost"}
    runs: dict[str, list[float]] = {}
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-X", "importtime", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        for microseconds, module in re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", done.stderr):
            runs.setdefault(module, []).append(int(microseconds) / 1000)
    return sorted(((median(took), module) for module, took in runs.items()), reverse=True)[:most]


def figures(quick: bool) -> list[Figure]:
    """Cold starts and sizes."""
    with tempfile.TemporaryDirectory() as folder:
        built = sam_build(Path(folder))
        times = measure(built, 3 if quick else 5)
        for layer in (*LAYERS, "DuckDbLayer"):
            times.append(Figure(f"{layer}, unzipped", size(built / layer, zipped=False), "MB"))
            times.append(Figure(f"{layer}, zipped", size(built / layer, zipped=True), "MB"))
        return times


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--imports":
        with tempfile.TemporaryDirectory() as folder:
            for milliseconds, module_ in imports(sam_build(Path(folder)), sys.argv[2]):
                print(f"{milliseconds:7.1f} ms  {module_}")
    else:
        stand_alone(figures, __doc__)
