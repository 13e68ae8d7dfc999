"""Asks for the values of options that were not passed."""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from gpucost.core.errors import InvalidInputError


class PatternOption(click.ParamType[str]):
    """A text that matches a pattern.

    Args:
        name: of the type, for the help.
        pattern: that the whole text must match.
        allowed: the allowed texts, for the error message.
    """

    def __init__(self, name: str, pattern: str, allowed: str) -> None:
        self.name = name
        self.pattern = pattern
        self.allowed = allowed

    def convert(self, text: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or fail with a usage error that says what is allowed."""
        if not re.fullmatch(self.pattern, text):
            self.fail(f"{text!r} is not {self.allowed}.", param, ctx)
        return str(text)


class SettingOption(click.ParamType[str]):
    """A setting, which its type in the settings document validates.

    Args:
        name: of the type, for the help.
        annotation: returns the type. It is called at the first use, because pydantic takes long to import.
        key: the field of the model that has the text; None: the text is the setting.
        is_optional: whether the text may be empty.
    """

    def __init__(
        self, name: str, annotation: Callable[[], Any], key: str | None = None, *, is_optional: bool = False
    ) -> None:
        self.name = name
        self._annotation = annotation
        self._key = key
        self._is_optional = is_optional

    def convert(self, text: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or fail with a usage error that says what is allowed."""
        from pydantic import TypeAdapter, ValidationError

        if self._is_optional and not text:
            return ""
        try:
            TypeAdapter(self._annotation()).validate_python({self._key: text} if self._key else text)
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
            self.fail(f"{text!r} {message}.", param, ctx)
        return str(text)


def yes_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--yes` to a command, which `answer` reads."""
    return click.option(
        "--yes",
        "accept_defaults",
        is_flag=True,
        expose_value=False,
        callback=_keep_consent,
        help="Accept the default of every question that has one.",
    )(command)


def answer(name: str, question: str, default: str | None = None) -> Any:
    """Return the value of an option of the running command. Ask for it if it was not passed.

    Args:
        name: of the option's parameter.
        question: for the terminal.
        default: the answer to Enter and to `--yes`; empty for none. None: the question has no default.

    Raises:
        InvalidInputError: there is no terminal. The message names the option.
    """
    context = click.get_current_context()
    (option,) = [parameter for parameter in context.command.params if parameter.name == name]
    if (passed := context.params[name]) is not None:
        return passed
    if default is not None and accepts_defaults():
        return option.type.convert(default, option, context)
    require_terminal(option.opts[0], default)

    def convert(text: str) -> Any:
        if not text and default is None:
            raise click.UsageError("an answer is required; Ctrl-C ends the command.")
        return option.type.convert(text, option, context)

    return click.prompt(
        question, default=default or "", show_default=bool(default), type=option.type, value_proc=convert, err=True
    )


def accepts_defaults() -> bool:
    """Return whether the running command has the option `--yes`."""
    return bool(click.get_current_context().meta[_ACCEPTS_DEFAULTS])


def require_terminal(option: str, default: str | None = None) -> None:
    """Refuse to ask a question without a terminal.

    Raises:
        InvalidInputError: the message names the option that answers the question.
    """
    if not sys.stdin.isatty():
        accept = f", or --yes to accept the default {default or 'none'}" if default is not None else ""
        raise InvalidInputError(f"{option} is missing, and there is no terminal to ask for it. Pass {option}{accept}")


def require_terminal_for_all(options: Sequence[str]) -> None:
    """Refuse to ask several questions without a terminal, so that all of their options are named at once.

    Raises:
        InvalidInputError: the message names the options.
    """
    if len(options) > 1 and not sys.stdin.isatty():
        *first, last = options
        raise InvalidInputError(
            f"{', '.join(first)} and {last} are missing, and there is no terminal to ask for them. Pass them, "
            "and --yes to accept the defaults of the other questions"
        )


_ACCEPTS_DEFAULTS = "gpucost.accepts_defaults"


def _keep_consent(context: click.Context, _parameter: click.Parameter, consents: bool) -> None:
    context.meta[_ACCEPTS_DEFAULTS] = consents
