"""Recorded answers of a real Prometheus, by path, query and times."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import requests

Recorded = dict[str, Any]
_TIMES = ("start", "end", "step", "time")
_LABELS = "labels "
_PATTERN = re.compile(r'=~"((?:[^"\\]|\\.)*)"')


class Metrics:
    """Answers queries from a recording. With a real Prometheus, it records missing queries.

    Attributes:
        missing: queries that the recording does not hold, as a reader would want to see them.
    """

    def __init__(self, recorded: Recorded | None = None, upstream: str = "") -> None:
        recorded = recorded or {}
        self._labels = {key: labels for key, labels in recorded.items() if key.startswith(_LABELS)}
        self._answers = {key: answer for key, answer in recorded.items() if not key.startswith(_LABELS)}
        self._upstream = upstream
        self._session = requests.Session()
        self._session.trust_env = False
        self.missing: list[str] = []

    def answer(self, path: str, form: str) -> tuple[int, dict[str, Any]]:
        """Status and body of an answer to a POST."""
        fields = dict(parse_qsl(form))
        times = (f"{name}={fields[name]}" for name in _TIMES if name in fields)
        key = json.dumps([path, _settled(fields["query"]), *times])
        if key not in self._answers:
            if not self._upstream:
                self.missing.append(key)
                sentence = "golden: this query is not recorded; run: python -m tests.golden record --inputs-only"
                return 400, {"status": "error", "errorType": "bad_data", "error": sentence}
            self._answers[key] = self._ask(path, fields)
        return self._whole(self._answers[key])

    def recorded(self) -> Recorded:
        """All queries with their answers. Equal label sets are stored once, in a stable order."""
        texts = sorted(
            {json.dumps(row[0], sort_keys=True) for answer in self._answers.values() for row in answer["rows"]}
        )
        numbers = {text: f"{_LABELS}{number:05}" for number, text in enumerate(texts)}
        answers = {
            key: {**answer, "rows": [[numbers[json.dumps(row[0], sort_keys=True)], row[1]] for row in answer["rows"]]}
            for key, answer in self._answers.items()
        }
        return {**answers, **{number: json.loads(text) for text, number in numbers.items()}}

    def _ask(self, path: str, fields: Mapping[str, str]) -> dict[str, Any]:
        answer = self._session.post(f"{self._upstream}/api/v1/{path}", data=fields, timeout=300)
        body = answer.json()
        if not answer.ok or body.get("warnings"):
            raise RuntimeError(f"Prometheus answered {answer.status_code}: {str(body)[:300]}")
        data = body["data"]
        # Prometheus does not define the order of instant answers, and timings differ between runs.
        rows = sorted(
            ([row["metric"], row["values"] if "values" in row else [row["value"]]] for row in data["result"]),
            key=lambda row: json.dumps(row, sort_keys=True),
        )
        samples = data.get("stats", {}).get("samples", {}).get("totalQueryableSamples", 0)
        return {"type": data["resultType"], "samples": samples, "rows": rows}

    def _whole(self, answer: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        values = "value" if answer["type"] == "vector" else "values"
        result = [
            {
                "metric": row[0] if isinstance(row[0], dict) else self._labels[row[0]],
                values: row[1][0] if values == "value" else row[1],
            }
            for row in answer["rows"]
        ]
        stats = {"samples": {"totalQueryableSamples": answer["samples"]}}
        return 200, {"status": "success", "data": {"resultType": answer["type"], "result": result, "stats": stats}}


def _settled(query: str) -> str:
    """Normalize a query's spaces and the order of its alternatives, because the product keeps names in sets."""

    def settled(pattern: re.Match[str]) -> str:
        text = pattern[1]
        return pattern[0] if "(" in text else f'=~"{"|".join(sorted(text.split("|")))}"'

    return _PATTERN.sub(settled, " ".join(query.split()))
