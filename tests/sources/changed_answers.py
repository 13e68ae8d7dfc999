"""A Prometheus whose answers were recorded, and are changed at random."""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from gpucost.core.hours import HOUR
from gpucost.runtime.bounded_http import HttpResponse
from gpucost.settings_document import SettingsDocument, parse_settings
from gpucost.sources.prometheus.client import PrometheusClient
from tests.golden import fixtures
from tests.golden.scenarios.fleet import BASE

CLUSTERS = (
    "hami-quarters",
    "hami-old-names-with-cores",
    "processes-several",
    "energy-idle",
    "worked-example",
    "claims-dynamic-mig-on-premises",
    "mix-vgpus-3",
    "runai-reservation",
    "neuron-inf2",
    "amd-cpx-labeled",
    "mig-mixed-a30",
    "sharer-labels-flip",
    "gpu-passed-on-in-a-short-gap",
    "pod-over-hours",
)
"""Recorded clusters with few series, which together need every reader."""
NOW = BASE + 5 * HOUR
Document = dict[str, Any]
TOO_LARGE = "response larger than 50 MB"
"""What AMP answers with status 413."""
_WORD = re.compile(r"\w{4,}")
_CLUSTER = re.compile(r'cluster=\\*"([^"\\]+)')
WRONG_TYPES: tuple[Any, ...] = (None, True, 0, -1, 1e300, 10**30, 1795086000.123, [], [1], {}, {"a": 1})
TEXTS = (
    "",
    "NaN",
    "+Inf",
    "-Inf",
    "1e-999999999",
    "1e308",
    "-1",
    "x" * 5000,
    "9" * 400,
    "0x1",
    "\ud800",
    "a\nb",
    "1e-330",
    "nvidia_com_gpu",
    "<none>",
    "0",
    "1",
    "2.5",
    "1e15",
    "1795086000",
)


class RecordedAnswers:
    """Answers of a real Prometheus about some clusters.

    The answer to a query is the recorded one of the most similar query, so that the recording does not depend on every
    word of a query.
    """

    def __init__(self, names: Sequence[str] = CLUSTERS) -> None:
        recorded = fixtures.read("fleet.prometheus", exact=False)
        self._answers: dict[str, list[tuple[str, frozenset[str], frozenset[str], Document]]] = {}
        for key, answer in recorded.items():
            cluster = next(iter(_CLUSTER.findall(key)), "")
            if cluster in names and not key.startswith("labels"):
                path, query, *times = json.loads(key)
                rows = [{"metric": recorded.get(str(row[0]), row[0]), "values": row[1]} for row in answer["rows"]]
                entry = (path, frozenset(_WORD.findall(query)), frozenset(times), _document(answer["type"], rows))
                self._answers.setdefault(cluster, []).append(entry)
        assert self._answers.keys() == {*names}, "each cluster has answers in the recording"
        self._cache: dict[tuple[str, ...], str] = {}

    def answer(self, path: str, form: Mapping[str, str]) -> str:
        """The JSON text of the answer."""
        key = (path, *form.values())
        if key not in self._cache:
            words = frozenset(_WORD.findall(form["query"]))
            times = frozenset(f"{name}={form[name]}" for name in ("start", "end", "step", "time") if name in form)
            (cluster,) = {*_CLUSTER.findall(form["query"])}
            same_path = [candidate for candidate in self._answers[cluster] if candidate[0] == path]
            similarity = [
                len(words & others) / len(words | others) + 0.2 * (times == other_times)
                for _, others, other_times, _ in same_path
            ]
            document = same_path[similarity.index(max(similarity))][3] if same_path else _document("matrix", [])
            self._cache[key] = json.dumps(document)
        return self._cache[key]


def _document(result_type: str, rows: list[Document]) -> Document:
    return {"status": "success", "data": {"resultType": result_type, "result": rows, "stats": {}}}


class AnsweredClient(PrometheusClient):
    """A client whose requests a function answers instead of a server."""

    def __init__(self, url: str, *, answer: Callable[[str, Mapping[str, str]], str], **options: Any) -> None:
        super().__init__(url, **options)
        self._answer = answer

    def _send_request(
        self, method: str, path: str, form: Mapping[str, str] | None, seconds: float, limit: int
    ) -> HttpResponse:
        if form is None:
            return HttpResponse(404, "", {}, b"")
        text = self._answer(path, form)
        is_refused = text == TOO_LARGE
        return HttpResponse(413 if is_refused else 200, "Payload Too Large" if is_refused else "OK", {}, text.encode())


class Changes:
    """Changes some of the answers that a reader gets, as a seed says.

    Args:
        seed: of the random numbers.
        answer: returns the unchanged answers.
        share: of the answers that are changed.
    """

    def __init__(self, seed: int, answer: Callable[[str, Mapping[str, str]], str], share: float = 0.15) -> None:
        self._random = random.Random(seed)
        self._answer = answer
        self._share = share
        self._lock = Lock()

    def answer(self, path: str, form: Mapping[str, str]) -> str:
        """The JSON text of an answer."""
        text = self._answer(path, form)
        with self._lock:
            if self._random.random() >= self._share:
                return text
            document = json.loads(text)
            for _ in range(self._random.choice((1, 1, 3))):
                _change(self._random, document)
            return json.dumps(document)


def _change(rng: random.Random, document: Document) -> None:
    """Change one thing: seldom the shape of the answer, mostly labels, samples and rows."""
    strange, data = rng.choice(WRONG_TYPES), document.get("data")
    rows = data.get("result") if isinstance(data, dict) else None
    if rng.random() < 0.01 or not isinstance(rows, list) or not isinstance(data, dict):
        document[rng.choice(("status", "data"))] = strange
        return
    row = rng.choice(rows) if rows else None
    if rng.random() < 0.02 or not isinstance(row, dict) or not isinstance(row.get("metric"), dict):
        data[rng.choice(("resultType", "result", "stats"))] = rng.choice((strange, "vector", "scalar"))
        return
    rng.choice((_change_label, _change_label, _change_sample, _change_sample, _change_times, _change_rows))(
        rng, rows, row
    )


def _strange(rng: random.Random) -> Any:
    return rng.choice(WRONG_TYPES if rng.random() < 0.1 else TEXTS)


def _change_label(rng: random.Random, rows: list[Document], row: Document) -> None:
    labels = row["metric"]
    name = rng.choice([*labels, "extra"])
    if rng.random() < 0.2:
        labels.pop(name, None)
    else:
        texts = [text for other in rows if isinstance(other, dict) for text in dict(other.get("metric") or {}).values()]
        labels[name] = rng.choice((_strange(rng), rng.choice(texts or [""]), rng.choice(texts or [""])))


def _samples(row: Document) -> list[Any]:
    pairs = row.get("values") or [row.get("value")]
    return pairs if isinstance(pairs, list) else []


def _change_sample(rng: random.Random, rows: list[Document], row: Document) -> None:
    pairs = _samples(row)
    if pairs and isinstance(pair := rng.choice(pairs), list) and len(pair) == 2:
        pair[0 if rng.random() < 0.05 else 1] = _strange(rng)
    elif pairs:
        pairs[0] = _strange(rng)


def _change_times(rng: random.Random, rows: list[Document], row: Document) -> None:
    delta = rng.choice((-1, 1, 15, -3600, 3600, -2e9, 0.001))
    pairs = [pair for pair in _samples(row) if isinstance(pair, list) and pair and isinstance(pair[0], float | int)]
    for pair in rng.choice((pairs, pairs[-1:], pairs[:1])):
        pair[0] += delta


def _change_rows(rng: random.Random, rows: list[Document], row: Document) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        rows.append(json.loads(json.dumps(row)))
    elif kind == 1:
        rng.shuffle(rows)
    elif kind == 2:
        del rows[rng.randrange(len(rows)) :]
    elif "values" in row and isinstance(row["values"], list):
        del row["values"][rng.randrange(len(row["values"]) + 1) :]


def settings_of(cluster: str, **sections: Any) -> SettingsDocument:
    """Settings of one recorded cluster."""
    document = {
        "clusters": [{"name": cluster, "prometheus": {"url": "http://127.0.0.1:9"}, "selector": {"cluster": cluster}}],
        "pricing": {"source": "constant", "gpu_hourly_usd": 10},
        **sections,
    }
    return parse_settings(json.dumps(document))
