"""Runs the system scenarios against other metric servers, and prints which versions passed.

The packages come from newer suites of the Debian mirror that this machine's own apt sources name. They are unpacked
under .tools/compat and not installed. `make compat` runs this; docs/how-to/existing-cluster.md has the table.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".tools" / "compat"
SUITES = ("trixie", "sid")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SCENARIOS = (
    "tests/system",
    "tests/pipeline/test_attribute.py",
    "tests/pipeline/test_attempts.py",
    "tests/features/recommendations/test_waiting_pods.py",
    "tests/manifests/test_labels.py",
)
WITHOUT = ("--ignore=tests/system/test_demo.py",)
"""The demo's page and commands do not depend on the server."""
NO_NAN = "VictoriaMetrics stores no NaN: such a sample is missing there"
SAME_EXPONENT = "VictoriaMetrics stores a block of samples with the same exponent: next to 1e308, 0.25 becomes 0"
NO_RETENTION = "VictoriaMetrics does not expose its retention, so settings need prometheus.retention_days"
NO_STATISTICS = "the test reads Prometheus' own query statistics; the limits are AMP's"
LIMITS = "tests/pipeline/test_attribute.py::test_queries_of_a_whole_message_stay_within_amps_limits"
IMPLAUSIBLE = "tests/system/test_suspect_samples.py::test_implausible_use_is_not_observed"
CAPPED = "tests/system/test_metering_devices.py::test_values_above_1_are_capped_and_nan_is_not_a_measurement"
ODD = "tests/system/test_metering_odd_samples.py::test_non_numeric_sample_does_not_fail_the_hour"


@dataclass(frozen=True)
class Server:
    """A server to test against, and its known differences."""

    name: str
    packages: tuple[str, ...]
    """Debian's packages. The first one contains the executable."""
    executable: str
    tests: tuple[str, ...]
    replaces_prometheus: bool = False
    """Whether an environment variable names it. Otherwise it is put first on the PATH."""
    differences: Mapping[str, str] = field(default_factory=dict)
    """Tests that fail on it, each with the reason."""


SERVERS = (
    Server("Prometheus 2", (), "prometheus", (*SCENARIOS, "tests/manifests/test_collection.py")),
    Server(
        "Prometheus 3",
        ("prometheus", "promtool"),
        "prometheus",
        (*SCENARIOS, "tests/manifests/test_collection.py", "tests/dashboards"),
    ),
    Server(
        "VictoriaMetrics",
        ("victoria-metrics",),
        "victoria-metrics",
        SCENARIOS,
        replaces_prometheus=True,
        differences={
            "tests/system/test_cli.py::test_hour_before_the_retention_is_refused": NO_RETENTION,
            "tests/pipeline/test_attribute.py::test_hours_past_the_retention_are_refused_with_the_reason": NO_RETENTION,
            LIMITS: NO_STATISTICS,
            "tests/system/test_metering.py::test_invalid_request_only_affects_its_line[NaN]": NO_NAN,
            CAPPED: NO_NAN,
            "tests/system/test_metering_odd_samples.py::test_non_numeric_use_is_unobserved[NaN]": NO_NAN,
            f"{IMPLAUSIBLE}[1e308]": SAME_EXPONENT,
            f"{IMPLAUSIBLE}[9223372036854775794]": SAME_EXPONENT,
            f"{ODD}[kube_node_info]": NO_NAN,
            f"{ODD}[kube_node_status_capacity]": NO_NAN,
            f"{ODD}[kube_node_status_allocatable]": NO_NAN,
        },
    ),
    Server(
        "Alertmanager",
        ("prometheus-alertmanager",),
        "prometheus-alertmanager",
        ("tests/features/alerting/test_alertmanager.py",),
    ),
)


def main(wanted: Sequence[str]) -> int:
    """Test the servers whose names contain one of some words, or all; returns the exit status."""
    servers = [
        server for server in SERVERS if not wanted or any(word.lower() in server.name.lower() for word in wanted)
    ]
    if not servers:
        say(f"no server is named like {' '.join(wanted)}; there are {', '.join(server.name for server in SERVERS)}")
        return 2
    available = apt_versions([name for server in servers for name in server.packages])
    rows = [test(server, available) for server in servers]
    print("| server | version | passed | known differences | failed | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {' | '.join(map(str, row[:6]))} |")
    for problem in (problem for row in rows for problem in row[6]):
        say(problem)
    return int(any(row[6] for row in rows))


def test(server: Server, available: Mapping[str, str]) -> tuple[str, str, int, int, int, int, list[str]]:
    """Run a server's tests; then those that are known to fail, which must still do so."""
    environment, version = prepare(server, available)
    say(f"{server.name} {version}: running the tests")
    start = time.monotonic()
    deselected = [f"--deselect={name}" for name in server.differences]
    passed, failed = pytest([*server.tests, *WITHOUT, *deselected], environment)
    problems = [f"{server.name} {version}: {name} failed" for name in failed]
    if not passed:
        problems.append(f"{server.name} {version}: no test passed")
    if server.differences:
        gone, _ = pytest(list(server.differences), environment)
        problems += [f"{server.name} {version}: {name} passes now; take it off the differences" for name in gone]
    seconds = round(time.monotonic() - start)
    return server.name, version, len(passed), len(server.differences), len(failed), seconds, problems


def pytest(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Run pytest; returns the names of tests that passed, and of those that failed or broke."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [str(ROOT / ".venv/bin/python"), "-m", "pytest", "-q", "--tb=no", f"--junitxml={report.name}"]
        command += arguments
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode not in {0, 1}:
            raise SystemExit(f"compat: pytest could not run: {(done.stdout + done.stderr).strip()[-1000:]}")
        cases = list(ElementTree.parse(report.name).iter("testcase"))
    failed = {id(case) for case in cases if case.find("failure") is not None or case.find("error") is not None}
    names = {id(case): f"{case.get('classname')}::{case.get('name')}" for case in cases}
    return [names[key] for key in names if key not in failed], [names[key] for key in names if key in failed]


def prepare(server: Server, available: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Unpack a server; returns the environment in which tests find it, and its version."""
    folder = unpack(server.packages, available) if server.packages else None
    executable = str(folder / server.executable) if folder else server.executable
    environment = dict(os.environ)
    environment.pop("GPUCOST_VICTORIA_METRICS", None)
    if server.replaces_prometheus:
        environment["GPUCOST_VICTORIA_METRICS"] = executable
    elif folder:
        environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
    shown = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"version (\d+\.\d+\.\d+)", shown.stdout + shown.stderr)
    return environment, match[1] if match else available[server.packages[0]].partition("+")[0]


def unpack(packages: Sequence[str], available: Mapping[str, str]) -> Path:
    """Fetch packages and unpack them into one folder; returns where its executables are."""
    folder = HOME / "-".join([packages[0], re.sub(r"[^\w.]", "_", available[packages[0]])])
    if not folder.exists():
        downloads = HOME / "downloads"
        downloads.mkdir(exist_ok=True)
        partial = folder.with_suffix(".partial")
        for package in packages:
            say(f"fetching {package} {available[package]}")
            apt("apt-get", "download", f"{package}={available[package]}", cwd=downloads)
            (file,) = downloads.glob(f"{package}_*.deb")
            subprocess.run(["dpkg", "-x", file, partial], check=True)
            file.unlink()
        partial.rename(folder)
    return folder / "usr" / "bin"


def apt_versions(packages: Sequence[str]) -> dict[str, str]:
    """The newest version of each package in the suites."""
    if not packages:
        return {}
    HOME.mkdir(parents=True, exist_ok=True)
    mirror = debian_mirror()
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (HOME / "sources.list").write_text("".join(f"deb {signed}{mirror} {suite} main\n" for suite in SUITES))
    for name in ("lists/partial", "cache/archives/partial"):
        (HOME / name).mkdir(parents=True, exist_ok=True)
    apt("apt-get", "update", "-qq")
    versions: dict[str, str] = {}
    for line in apt("apt-cache", "madison", *packages).splitlines():  # the newest of each comes first
        name, version = (part.strip() for part in line.split("|")[:2])
        versions.setdefault(name, version)
    if missing := set(packages) - versions.keys():
        raise SystemExit(f"compat: {', '.join(sorted(missing))}: not in {' or '.join(SUITES)} of this machine's mirror")
    return versions


def apt(*command: str, cwd: Path = HOME) -> str:
    """Run apt with separate sources, lists and cache."""
    settings = {
        "Dir::Etc::sourcelist": HOME / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": HOME / "lists",
        "Dir::Cache": HOME / "cache",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    done = subprocess.run([command[0], *options, *command[1:]], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"compat: {' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def debian_mirror() -> str:
    """The address of the Debian archive in this machine's apt sources."""
    folder = Path("/etc/apt")
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if path.suffix in {".list", ".sources"} and path.exists():
            for address, components in _entries(path.read_text(), is_deb822=path.suffix == ".sources"):
                if address.rstrip("/").endswith("/debian") and "main" in components:
                    return address
    raise SystemExit(
        "compat: /etc/apt names no Debian archive. The packages need Debian or a system of its family; elsewhere "
        "(macOS, Fedora) run this in a Debian container."
    )


def _entries(text: str, *, is_deb822: bool) -> Iterator[tuple[str, list[str]]]:
    """Addresses and components of sources, in either of apt's formats."""
    if is_deb822:
        for paragraph in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^([\w-]+):[ \t]*(.*)$", paragraph, re.MULTILINE))
            if fields.get("Enabled", "yes").strip() != "no":
                yield from (
                    (address, fields.get("Components", "").split()) for address in fields.get("URIs", "").split()
                )
        return
    for line in text.splitlines():
        if entry := re.match(r"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+\S+\s+([^#]*)", line):
            yield entry[1], entry[2].split()


def say(text: str) -> None:
    """Report progress."""
    print(f"compat: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
