"""Answers the questions of a command on a pseudo terminal."""

import os
import pty
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 60.0
"""Time without output after which a command counts as waiting for an answer that the test does not have."""


def converse(
    command: Sequence[str | Path],
    answers: Sequence[tuple[str, str]],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
) -> tuple[int, str]:
    """Run a command, and type each answer after its question. Return exit status and output."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=env, cwd=cwd)
    os.close(terminal)
    text, unread, remaining = "", "", list(answers)
    try:
        while select.select([controller], [], [], SECONDS)[0]:
            try:
                output = os.read(controller, 4096).decode()
            except OSError:  # the process ended
                break
            text, unread = text + output, unread + output
            if remaining and remaining[0][0] in unread:
                os.write(controller, f"{remaining.pop(0)[1]}\n".encode())
                unread = ""
        assert not remaining, f"never asked: {remaining[0][0]}\n{text}"
        return process.wait(timeout=SECONDS), text
    finally:
        process.kill()
        process.wait()
        os.close(controller)
