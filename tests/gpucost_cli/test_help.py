"""The help of every command: whole sentences, an example, and formats for scripts."""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from inspect import cleandoc

import click
import pytest
from click.testing import CliRunner

from gpucost_cli.main import COMMANDS as COMMAND_MODULES
from gpucost_cli.main import cli
from tests.gpucost_command import gpucost, in_this_process


def subcommands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group, which the top level imports one by one."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield name, command


def commands(group: click.Group, *parents: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below a group with its full name."""
    for name, command in subcommands(group):
        if isinstance(command, click.Group):
            yield from commands(command, *parents, name)
        else:
            yield " ".join((*parents, name)), command


def groups(group: click.Group, *parents: str) -> Iterator[tuple[str, ...]]:
    yield parents
    for name, command in subcommands(group):
        if isinstance(command, click.Group):
            yield from groups(command, *parents, name)


COMMANDS = dict(commands(cli))


@pytest.mark.parametrize("names", list(groups(cli)), ids=" ".join)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_lists_of_commands_are_not_truncated(names: tuple[str, ...], width: int) -> None:
    result = CliRunner().invoke(cli, [*names, "--help"], terminal_width=width)
    assert result.exit_code == 0
    assert "..." not in result.output.partition("Commands:" if names else "Start here:")[2]


def test_commands_are_grouped_and_those_to_start_with_are_first() -> None:
    lines = in_this_process("--help").stdout.splitlines()
    groups = [line for line in lines if line.endswith(":") and not line.startswith((" ", "Usage"))]
    assert groups[:2] == ["Options:", "Start here:"]
    start = lines[lines.index("Start here:") + 1 : lines.index(groups[2])]
    names = [line.split()[0] for line in start if re.match(r"  \S", line)]
    assert names == ["serve", "attribute", "doctor", "init", "demo"]
    assert {line.split()[0] for line in lines if re.match(r"  [a-z]+  ", line)} == {*COMMAND_MODULES}


@pytest.mark.parametrize("name", ["serve", "attribute", "doctor"])
def test_address_of_prometheus_is_the_first_option(name: str) -> None:
    options = [
        line.split()[0] for line in in_this_process(name, "--help").stdout.splitlines() if line.startswith("  --")
    ]
    assert options[:3] == ["--prometheus", "--settings", "--token-file"]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_a_sentence_and_an_example(name: str) -> None:
    text = cleandoc(COMMANDS[name].help or "")  # Python 3.13 removes the indentation itself
    first = " ".join(text.partition("\n\n")[0].split())
    assert first.endswith("."), first
    assert first[0].isupper(), first
    assert "\b\nExample:\n" in text, "an example in the docstring"
    assert f"gpucost {name}" in text.partition("Example:")[2]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_option_has_a_help_text(name: str) -> None:
    options = [parameter for parameter in COMMANDS[name].params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize(
    "name", [name for name in COMMANDS if name.split()[-1] in {"list", "history", "changes", "adjustments"}]
)
def test_lists_have_a_json_format(name: str) -> None:
    (option,) = [parameter for parameter in COMMANDS[name].params if "--format" in parameter.opts]
    assert isinstance(option.type, click.Choice)
    assert "json" in option.type.choices


def test_version_is_that_of_the_package() -> None:
    result = in_this_process("--version")
    assert (result.returncode, result.stdout) in {
        (None, f"gpucost {version('gpucost')}\n"),
        (0, f"gpucost {version('gpucost')}\n"),
    }


@pytest.mark.tools
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_asks_gpucost(shell: str) -> None:
    result = in_this_process("completion", shell)
    assert result.returncode == 0
    assert "_GPUCOST_COMPLETE" in result.stdout
    assert "gpucost" in result.stdout


@pytest.mark.tools
def test_bash_completes_commands() -> None:
    done: subprocess.CompletedProcess[str] = gpucost(
        _GPUCOST_COMPLETE="bash_complete", COMP_WORDS="gpucost mani", COMP_CWORD="1"
    )
    assert done.stdout.strip() == "plain,manifests"


def test_unknown_command_suggests_similar_ones() -> None:
    result = in_this_process("reprot")
    assert result.returncode == 2
    assert "'report'" in result.stderr
    assert "'settings'" not in result.stderr


def test_top_level_list_has_the_first_sentence_of_every_command() -> None:
    written = {name: summary for name, (_, summary) in COMMAND_MODULES.items()}
    helps = {name: " ".join((command.help or "").partition("\n\n")[0].split()) for name, command in subcommands(cli)}
    assert written == helps


@pytest.mark.tools
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["unknown"]])
def test_help_and_errors_import_no_command_and_no_heavy_library(arguments: list[str]) -> None:
    """Imports are most of the time of a short command."""
    script = (
        "import sys\nfrom gpucost_cli.main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    imported = {*done.stderr.splitlines()[-1].split()}
    assert {"click", "gpucost_cli.main"} <= imported
    commands = {name for name in imported if name.startswith("gpucost_cli.") and name != "gpucost_cli.main"}
    assert commands == set()
    assert imported.isdisjoint({"rich", "pydantic", "boto3", "botocore", "requests", "yaml", "msgspec"})
