"""`gpucost export` rejects invalid options before it sends any request."""

import pytest

from tests.gpucost_command import gpucost


@pytest.mark.tools
@pytest.mark.parametrize(
    ("start", "end", "sentence"),
    [
        (
            "2026-11-01T05:00:00Z",
            "2026-11-02T00:00:00Z",
            "--from 2026-11-01T05:00:00Z is not the start of a UTC day. Pass for example 2026-10-01",
        ),
        (
            "2026-11-02T00:00:00Z",
            "2026-11-02T00:00:00Z",
            "--to 2026-11-02T00:00:00Z is not after --from 2026-11-02T00:00:00Z. Pass a later --to",
        ),
        (
            "2090-11-02T00:00:00Z",
            "2090-11-03T00:00:00Z",
            "--from 2090-11-02T00:00:00Z is in the future. Pass today (UTC) or an earlier day",
        ),
    ],
)
def test_wrong_days_are_rejected(start: str, end: str, sentence: str) -> None:
    done = gpucost("export", "--stack", "local", "--from", start, "--to", end)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gpucost: {sentence}\n")
