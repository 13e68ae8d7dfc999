"""The shell commands of the documentation, and what they call when a page runs from top to bottom.

A page's `sh` blocks run as one script in a copy of the clone's files. `gpucost` is the real command where it needs
neither AWS nor a running demo. Programs that change a cluster, an account or this machine are stand-ins, which record
their arguments after the shell has expanded them.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gpucost_devstack.template import REPOSITORY
from tests.kernel_clock import SET_CLOCK

PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for path in (
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        REPOSITORY / "SECURITY.md",
        REPOSITORY / "benchmarks/README.md",
        *(path for path in (REPOSITORY / "docs").rglob("*.md") if "decisions" not in path.parts),
    )
)
LOCAL_PROMETHEUS = re.compile(r"http://127\.0\.0\.1:9090|https://mimir[^\s\"']*")
PROGRAMS = (
    "aws",
    "awscurl",
    "curl",
    "eksctl",
    "git",
    "gpucost",
    "helm",
    "kubectl",
    "make",
    "npm",
    "pipx",
    "sam",
    "sha256sum",
    "unzip",
    "uvx",
)
STAND_IN = """\
import json, os, pathlib, sys
program, arguments = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
options = ("--settings", "--prometheus-url", "--prometheus")
named = [text for option, text in zip(arguments, arguments[1:]) if option in options]
texts = [open(text).read() if os.path.isfile(text) else text for text in named]
serves = any(os.environ["PROMETHEUS"] in text for text in texts)
real = program == "gpucost" and (
    arguments[0] in ("completion", "manifests", "--version", "--help")
    or arguments[0] == "settings" and arguments[1] in ("check", "schema")
    or serves and (arguments[0] == "doctor" or arguments[0] == "init" and not os.path.exists("settings.yaml")
                   or arguments[0] == "attribute" and not any(text.startswith("2026-11-19") for text in arguments)))
files = [a[7:] if a.startswith("file://") else a for a, before in zip(arguments, [""] + arguments)
         if before in ("-f", "--template-file") or a.startswith("file://")]
record = dict(program=program, arguments=arguments, ran=bool(real), line=int(os.environ["BLOCK"]),
              missing=[f for f in files if "://" not in f and not os.path.exists(f)])
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps(record) + "\\n")
if real:
    os.execv(os.environ["GPUCOST"], ["gpucost", *arguments])
if "@-" in arguments:
    sys.stdin.read()
for option, path in zip(arguments, arguments[1:]):
    if program == "curl" and option == "-o":
        pathlib.Path(path).touch()
if program == "unzip":
    folder = pathlib.Path(arguments[-1] if "-d" in arguments else arguments[0].removesuffix(".zip"))
    folder.mkdir()
    (folder / "template.yaml").touch()
answers = {"helm list": "kube-prometheus-stack", "kubectl get --raw": 'kube_node_labels{label_instance_type="x"} 1'}
print(*[text for start, text in answers.items() if " ".join([program, *arguments]).startswith(start)] or [program])
"""


@dataclass(frozen=True)
class Call:
    """A program that a page called."""

    program: str
    arguments: list[str]
    ran: bool
    """Whether the real program ran, and not only a stand-in."""
    missing: list[str]
    """Files among the arguments that did not exist."""
    line: int = 0
    """The line on the page at which the block begins."""

    def __str__(self) -> str:
        return " ".join([self.program, *self.arguments])


@dataclass(frozen=True)
class PageRun:
    """What the blocks of a page called and printed."""

    calls: list[Call]
    printed: dict[int, str]
    """Output and errors of each block, by the line at which it begins."""


def tokens(page: str) -> Iterator[Token]:
    """The tokens of a page, without its head, and those of its paragraphs."""
    for token in MarkdownIt().parse((REPOSITORY / page).read_text()):
        yield token
        yield from token.children or ()


def block_lines(page: str) -> list[int]:
    """The lines at which the shell blocks of a page begin."""
    return [token.map[0] for token in tokens(page) if token.type == "fence" and token.info == "sh" and token.map]


def claims(page: str) -> dict[int, list[str]]:
    """What the first sentence of each paragraph "Expected output" quotes, by the line of the block before it."""
    quoted: dict[int, list[str]] = {}
    for token in tokens(page):
        if token.type == "inline" and token.map and token.content.startswith("Expected output"):
            before = max(line for line in block_lines(page) if line < token.map[0])
            quoted[before] = re.findall(r"`([^`]+)`", token.content.partition(". ")[0])
    return quoted


def script(page: str) -> str:
    """The shell blocks of a page as one script, in which every command has the number of its line on the page."""
    lines = [""] * len((REPOSITORY / page).read_text().splitlines())
    for token in tokens(page):
        if token.type == "fence" and token.info == "sh" and token.map:
            for number, line in enumerate(token.content.splitlines(), start=token.map[0] + 1):
                lines[number] = line
    return "\n".join(lines)


def has_commands(page: str) -> bool:
    """Whether a page has shell blocks."""
    return "```sh\n" in (REPOSITORY / page).read_text()


def run_page(page: str, folder: Path, prometheus_url: str) -> PageRun:
    """Run the shell blocks of a page.

    Raises:
        AssertionError: a command failed; the message has its line on the page.
    """
    programs, calls, work = folder / "programs", folder / "calls", folder / "clone"
    _write_clone(work, page, prometheus_url)
    programs.mkdir()
    calls.touch()
    stand_in = programs / "stand-in"
    stand_in.write_text(f"#!{REPOSITORY / '.venv/bin/python'} -ISE\n{STAND_IN}")
    stand_in.chmod(0o755)
    (work / ".venv/bin").mkdir(parents=True)
    for program in PROGRAMS:
        (programs / program).symlink_to(stand_in)
    (work / ".venv/bin/gpucost").symlink_to(stand_in)
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "CALLS": str(calls),
        "GPUCOST": str(REPOSITORY / ".venv/bin/gpucost"),
        "PROMETHEUS": prometheus_url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "COLUMNS": "140",
        **SET_CLOCK,
    }
    start = f'set -eo pipefail; fpath=(. "{folder}"); '  # zsh has fpath
    lines = script(page).splitlines()
    for line in block_lines(page):
        lines[line] = f"export BLOCK={line}; echo '{BLOCK_MARK}{line}'"
    done = subprocess.run(
        ["bash", "-c", start + LOCAL_PROMETHEUS.sub(prometheus_url, "\n".join(lines))],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    made = [Call(**json.loads(line)) for line in calls.read_text().splitlines()]
    assert done.returncode == 0, f"{page}: status {done.returncode} after {made[-1:]}: {done.stdout[-3000:]}"
    assert "command not found" not in done.stdout, done.stdout
    _, *blocks = done.stdout.split(BLOCK_MARK)
    printed = {int(line): output for line, _, output in (block.partition("\n") for block in blocks)}
    return PageRun(made, printed)


BLOCK_MARK = "@@ block of line "


PLACEHOLDERS = {
    "ws-00000000-0000-0000-0000-000000000000": "ws-1",
    "ws-…": "ws-1",
    "example.net": "corp.test",
    "111122223333": "210987654321",
    "123456789012": "210987654321",
    '"…"': '"210987654321"',
}
"""What the reader replaces, because gpucost refuses it."""


def _filled(text: str) -> str:
    for placeholder, text_of_reader in PLACEHOLDERS.items():
        text = text.replace(placeholder, text_of_reader)
    return text


def _write_clone(work: Path, page: str, prometheus_url: str) -> None:
    """Copy the parts of the clone that pages name, and write the settings and parameters that the page shows."""
    for name in ("cluster", "dashboards"):
        shutil.copytree(REPOSITORY / name, work / name)
    for policy in ("docs/how-to/deployer-policy.yaml", "docs/reference/cli-policies.yaml"):
        (work / policy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / policy, work / policy)
    settings = _filled((work / "cluster/settings.yaml").read_text())
    parameters: dict[str, object] = {}
    for token in reversed(list(tokens(page))):
        if token.type != "fence" or token.info != "yaml":
            continue
        document = yaml.safe_load(_filled(token.content))
        if isinstance(document, dict) and "clusters" in document and "url: …" not in token.content:
            settings = _filled(token.content)
        elif "how-to/clusters" in page and isinstance(document, dict):
            parameters |= document
    for path in (work / "cluster").rglob("*.yaml"):
        path.write_text(_filled(path.read_text()))
    shutil.copy(work / "cluster/parameters.yaml", work)
    if not re.search(r"^(.*/)?gpucost init", script(page).strip()):
        (work / "settings.yaml").write_text(LOCAL_PROMETHEUS.sub(prometheus_url, settings))
    (work / "params.yaml").write_text(yaml.safe_dump(parameters or {"account_id": "210987654321"}))


HOST = re.compile(r"https?://(127\.0\.0\.1:\d+|[a-z0-9]+\.execute-api\.[a-z0-9-]+\.amazonaws\.com)/")
