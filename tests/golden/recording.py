"""Records scenarios, and compares the product's answers with the recordings."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.golden import adapter, fixtures, scenarios
from tests.golden.compare import Difference, differences, split
from tests.golden.metrics import Metrics
from tests.golden.player import Played, Player

Log = Callable[[str], None]


def check(
    name: str, dynamodb: str, *, root: Path = adapter.REPOSITORY, texts: bool = False, log: Log = lambda _: None
) -> list[Difference]:
    """The differences between a scenario's answers and the recorded ones."""
    played, unknown = _replayed(name, dynamodb, root, log)
    return unknown + _compared(name, played, texts=texts)


def record_answers(name: str, dynamodb: str, *, log: Log = lambda _: None) -> list[Difference]:
    """Record the answers to the recorded inputs again. Returns the differences from the former answers.

    Raises:
        RuntimeError: a query is not recorded.
    """
    played, unknown = _replayed(name, dynamodb, adapter.REPOSITORY, log)
    if unknown:
        raise RuntimeError(f"{name}: queries are not recorded; record it whole: {unknown[0].actual}")
    changes = _compared(name, played, texts=True)
    answers, texts = _parts(played)
    fixtures.write(f"{name}.answers", answers)
    fixtures.write(f"{name}.texts", texts)
    return changes


def _replayed(name: str, dynamodb: str, root: Path, log: Log) -> tuple[Played, list[Difference]]:
    """Play a scenario with the recorded Prometheus; also returns the queries that are not recorded."""
    metrics = Metrics(fixtures.read(f"{name}.prometheus", exact=False))
    played = Player(_inputs(name), metrics, dynamodb, root).play(log)
    return played, [Difference("Prometheus", "a recorded query", key) for key in dict.fromkeys(metrics.missing)]


def record(name: str, dynamodb: str, *, inputs_only: bool = False, log: Log = lambda _: None) -> list[Difference]:
    """Record a scenario with a real Prometheus. Returns the differences of a second run, which must be none.

    Raises:
        RuntimeError: inputs are recorded for answers that stay, and the fleets' metrics are no longer the same.
    """
    scenario = scenarios.module(name)
    with tempfile.TemporaryDirectory(prefix="gpucost-golden-") as folder:
        scenario.write_metrics(Path(folder))
        digest = metrics_digest(Path(folder))
        inputs = _inputs(name) if inputs_only else {**scenario.inputs(), "metrics": digest}
        if inputs["metrics"] != digest:
            raise RuntimeError(
                f"{name}: the simulated fleets' metrics are not those that were recorded; record it whole"
            )
        with adapter.running_prometheus(Path(folder)) as upstream:
            metrics = Metrics(upstream=upstream)
            played = Player(inputs, metrics, dynamodb).play(log)
    fixtures.write(f"{name}.prometheus", metrics.recorded())
    if inputs_only:
        return _compared(name, played, texts=False)
    answers, texts = _parts(played)
    if surprises := list(_surprises(inputs["steps"], answers, texts)):
        raise RuntimeError(
            "\n  ".join([f"{name} is not recorded; steps ended otherwise than they should:", *surprises])
        )
    fixtures.write(f"{name}.inputs", inputs)
    fixtures.write(f"{name}.answers", answers)
    fixtures.write(f"{name}.texts", texts)
    return check(name, dynamodb, texts=True, log=log)


def metrics_digest(folder: Path) -> str:
    """A digest of the files with what Prometheus scraped."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.om")):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _surprises(
    steps: Sequence[Mapping[str, Any]], answers: Mapping[str, Any], texts: Mapping[str, Any]
) -> Iterator[str]:
    """Steps with an unexpected failure or success. Steps without an expectation may end either way."""
    for step in steps:
        expected = step.get("fails", False)
        answer = answers.get(step["name"])
        first = answer[0] if isinstance(answer, list) and answer else answer
        if not isinstance(first, dict) or expected is None:
            continue
        status = int(first.get("status", 0))
        if ("raised" in first or 0 < status < 200 or status >= 400 or status < 0) is not expected:
            yield f"{step['name']}: {fixtures.dumps(first)[:300]} {fixtures.dumps(texts.get(step['name'], {}))[:600]}"


def report(changes: Sequence[Difference], most: int) -> str:
    """The first differences, each with path, expected and actual value."""
    shown = "".join(f"  {change}\n" for change in changes[:most])
    return shown + (f"  … and {len(changes) - most} more\n" if len(changes) > most else "")


def _inputs(name: str) -> Any:
    inputs = fixtures.read(f"{name}.inputs", exact=False)
    if not inputs:
        raise RuntimeError(f"{name} is not recorded; run: python -m tests.golden record {name}")
    return inputs


def _compared(name: str, played: Played, *, texts: bool) -> list[Difference]:
    answers, new_texts = _parts(played)
    changes = list(differences(fixtures.read(f"{name}.answers"), answers))
    if texts:
        changes += differences(fixtures.read(f"{name}.texts"), new_texts, "texts")
    return changes


def _parts(played: Played) -> tuple[dict[str, Any], dict[str, Any]]:
    """Answers and texts of each step, after a round trip through the files."""
    answers, texts = {}, dict(played.texts)
    for step, answer in played.answers.items():
        answers[step], sentences = split(answer)
        if sentences:
            texts[step] = {**texts.get(step, {}), **sentences}
    return fixtures.loads(fixtures.dumps(answers)), fixtures.loads(fixtures.dumps(texts))
