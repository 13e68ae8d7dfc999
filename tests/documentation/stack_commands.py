"""The documented commands that need a stack, for a running demo."""

import re
import shlex
from datetime import datetime, timedelta

from tests.documentation.shell_commands import PAGES, script

ADDING = {"set", "add", "push", "close"}
REFUSED = {
    ("recommendations", "what-if"): "held no whole GPU of a model like 'A100'",
    ("prices", "refresh"): "spot is not fetched by this deployment",
}
"""What these commands say to a demo, which has no A100 and fetches no prices."""


def documented_commands() -> list[tuple[str, list[str]]]:
    """Every `gpucost … --stack` command of the pages, once for each set of options, with a page that has it.

    Those that add come first, and the nightly review comes last. `dashboard` serves until it is stopped, so it is left
    out; tests/system/test_dashboard_proxy.py tests it.
    """
    commands: dict[tuple[str, str, tuple[str, ...]], tuple[str, str]] = {}
    for page in PAGES:
        for line in script(page).replace("\\\n", " ").splitlines():
            if match := re.search(r"gpucost ([^#>|]*--stack [^#>|]*)", line):
                words = match[1].split()
                options = tuple(sorted(word for word in words if word.startswith("--")))
                commands.setdefault((words[0], words[1], options), (page, " ".join(words)))
    ordered = sorted(
        ((page, shlex.split(command)) for page, command in commands.values()),
        key=lambda documented: (documented[1][1] == "run", not ADDING & set(documented[1])),
    )
    return [(page, words) for page, words in ordered if words[0] != "dashboard"]


def for_demo(words: list[str], identifier: str, end: datetime) -> list[str]:
    """The words of a documented command with the stack, dates, and ID of a demo.

    Args:
        words: the command's, without `gpucost`.
        identifier: the ID that this command takes.
        end: the end of the demo's period.
    """
    days = iter(f"{end - timedelta(days=2 - number):%Y-%m-%d}" for number in range(3))
    replaced: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if before == "--stack":
            replaced.append("local")
        elif before in ("--from", "--to") and re.match(r"\d{4}-", word) and words[0] != "prices":
            replaced.append(next(days))
        elif re.fullmatch(r"ID|1f2e3d4c5b6a|idle-3f9a1c0d2b4e", word):
            replaced.append(identifier)
        elif before == "--receiver":
            replaced.append("email")
        elif before == "--settings" or word.endswith("settings.yaml"):
            replaced.append("settings.json")
        else:
            replaced.append(word)
    return replaced
