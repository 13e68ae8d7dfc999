"""The reference of the command line: every command with its options, defaults and example, from click."""

import inspect
import re
from collections.abc import Iterator

import click

from authoring.reference.markdown import code, fence, page, table
from gpucost_cli.main import cli

INTRODUCTION = """
`gpucost --help` and `gpucost COMMAND --help` print the same. Results go to stdout, progress and errors to stderr. The exit status is 0, 1 for a failure, or 2 for wrong input. Commands with `--stack` need [IAM permissions](cli-permissions.md).
"""  # noqa: E501 - one line for each paragraph


def command_line_page() -> str:
    """Render the page."""
    parts = [INTRODUCTION]
    for path, command in commands(cli, "gpucost"):
        parts += [f"## {code(path)}", *paragraphs(command), _usage(command, path), _parameters(command)]
    return page("Command line", "the commands", *parts)


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a group and every command in it, with the words that start it."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def paragraphs(command: click.Command) -> Iterator[str]:
    """The command's help; a paragraph after a backspace character is an example or a list, and keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        text = paragraph.strip("\n")
        if text.startswith("\b"):
            title, *lines = text.removeprefix("\b\n").split("\n")
            is_example = title.strip().rstrip(":") in ("Example", "Examples")
            yield title.strip() if is_example else ""
            shown = lines if is_example else [title, *lines]
            yield fence("sh" if is_example else "text", "\n".join(line.removeprefix("  ") for line in shown))
        else:
            yield _escape(" ".join(text.split()))


def _usage(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path)
    usage = fence("text", " ".join([path, *command.collect_usage_pieces(context)]))
    if not isinstance(command, click.Group):
        return usage
    names = command.list_commands(context)
    return f"{usage}\n\nCommands: {', '.join(code(name) for name in names)}"


def _parameters(command: click.Command) -> str:
    context = click.Context(command)
    rows = []
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            rows.append(_option(parameter, context))
        elif isinstance(parameter, click.Argument):
            kind = "Required." if parameter.required else ""
            rows.append((code(parameter.make_metavar(context)), "argument", "", kind))
    return table(("Option", "Values", "Default", "Meaning"), rows)


def _option(option: click.Option, context: click.Context) -> tuple[str, str, str, str]:
    names = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    extra = option.get_help_extra(context)
    values = "" if option.is_flag else code(option.make_metavar(context))
    if bounds := extra.get("range"):
        values = f"{values} ({bounds})"
    text = option.help or ""
    default = str(extra.get("default", ""))
    if documented := re.search(r"\s*\[default: ([^\]]*)\]", text):  # an option whose default is computed
        default, text = documented[1], text.replace(documented[0], "")
    required = "Required. " if option.required else ""
    return names, values, _escape(default), _escape(required + text)


def _escape(text: str) -> str:
    """Placeholders such as <name> are no HTML, and asterisks no emphasis."""
    return re.sub(r"([<*_])", r"\\\1", text)
