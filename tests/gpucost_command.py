"""Runs the command line, in a process of its own or in this one."""

import io
import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from gpucost.runtime.observability import logger
from gpucost_cli.main import main
from gpucost_devstack.template import REPOSITORY
from tests import forked_gpucost

GPUCOST = REPOSITORY / ".venv" / "bin" / "gpucost"


def gpucost(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked_gpucost.run(*arguments, env={**os.environ, **environment})


class CommandResult(NamedTuple):
    """Output and exit status of a command."""

    returncode: int | str | None
    stdout: str
    stderr: str


def in_this_process(*arguments: str) -> CommandResult:
    """Run the command in this process, because a new process takes most of a second. Some set the level of the log."""
    out, err = io.StringIO(), io.StringIO()
    status: int | str | None = 0
    level = logger.log_level
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            status = end.code
        finally:
            logger.setLevel(level)
    return CommandResult(status, out.getvalue(), err.getvalue())
