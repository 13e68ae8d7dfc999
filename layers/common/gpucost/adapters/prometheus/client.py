"""A client for Prometheus' query API that never takes half an answer for a whole one."""

import random
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import requests
from pydantic_core import from_json
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError

from gpucost.domain.hours import HOUR, to_ms
from gpucost.errors import MetricsAnswerError, MetricsTooLargeError, MetricsUnavailableError
from gpucost.observability import tally

ATTEMPTS = 4
BACKOFF_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 10.0
SAMPLES_LIMIT = "max_samples_processed_error_threshold"
"""AMP's own parameter, of the address: such a query is refused and costs nothing (AMP's API reference, QueryMetrics).

There is one for a warning, too; it is not sent, because an answer with a warning may be half an answer.
"""
QUERY_LENGTH_LIMIT = "-search.maxQueryLen"
"""What VictoriaMetrics names where it refuses a query as too long."""
_TRY_AGAIN = {429, 500, 502, 503, 504}
_SHOWN = 300
_PIECE = 1 << 20


class Series(NamedTuple):
    """One series of an answer: its labels and its samples as (milliseconds, value as text)."""

    labels: Mapping[str, str]
    samples: tuple[tuple[int, str], ...]


class PrometheusClient:
    """Asks one cluster's Prometheus.

    Args:
        url: base address, to which `/api/v1/…` is added.
        cluster: named in errors.
        auth: signs each request.
        timeout: seconds to wait for a connection, for the answer to begin, and then for all of it.
        most_samples: AMP is to refuse a query that would process more; None sends no such limit.
        sleep: waits between attempts.
    """

    def __init__(
        self,
        url: str,
        *,
        cluster: str,
        auth: AuthBase | None = None,
        timeout: float = 60,
        most_samples: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url.rstrip("/")
        self._cluster = cluster
        self._auth = auth
        self._timeout = timeout
        self._limits = {} if most_samples is None else {SAMPLES_LIMIT: str(most_samples)}
        self._sleep = sleep
        self._session = requests.Session()
        # Tests and the one-machine stack must not be led through a proxy; in Lambda there is none.
        self._session.trust_env = False

    def query_range(self, query: str, first: datetime, last: datetime, step: timedelta = HOUR) -> list[Series]:
        """Evaluate a query at even distances, of an hour where not told otherwise, from the first time to the last.

        Raises:
            MetricsUnavailableError: no answer after retries.
            MetricsAnswerError: an answer that must not be used.
        """
        form = {
            "query": query,
            "start": _seconds(first),
            "end": _seconds(last),
            "step": str(int(step.total_seconds())),
        }
        return self._series("query_range", form)

    def query(self, query: str, at: datetime) -> list[Series]:
        """Evaluate a query at one time; each series has one sample.

        Raises:
            MetricsUnavailableError, MetricsAnswerError: as `query_range`.
        """
        return self._read("vector", "query", {"query": query, "time": _seconds(at)})

    def raw_samples(self, selector: str, start: datetime, end: datetime) -> list[Series]:
        """Every sample of a selector's series in `(start, end]`, as it was scraped.

        Raises:
            MetricsUnavailableError, MetricsAnswerError: as `query_range`.
        """
        milliseconds = to_ms(end) - to_ms(start)
        return self._series("query", {"query": f"{selector}[{milliseconds}ms]", "time": _seconds(end)})

    def retention(self) -> timedelta | None:
        """How long the server keeps samples, where it tells (AMP does not)."""
        try:
            answer = self._session.get(f"{self._url}/api/v1/status/runtimeinfo", auth=self._auth, timeout=self._timeout)
            text = answer.json()["data"]["storageRetention"] if answer.ok else ""
        except (requests.RequestException, ValueError, KeyError, TypeError):
            return None
        return parse_duration(text.split(" ")[0])

    def _series(self, path: str, form: Mapping[str, str]) -> list[Series]:
        return self._read("matrix", path, form)

    def _read(self, kind: str, path: str, form: Mapping[str, str]) -> list[Series]:
        data = self._ask(path, form)
        try:
            if data["resultType"] != kind:
                raise MetricsAnswerError(self._says(f"answered a {data['resultType']} for a {kind}", form))
            rows = data["result"] if "stats" in data else _without_stale_markers(data["result"])
            return [_series(row) for row in rows]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise MetricsAnswerError(self._says("answered in a form that is not Prometheus' own", form)) from error

    def _ask(self, path: str, form: Mapping[str, str]) -> Any:
        """POST a query, again and again while that can help; only `data` of a whole success comes back."""
        problem = ""
        wait = 0.0
        for attempt in range(ATTEMPTS):
            if attempt:
                self._sleep(min(LONGEST_WAIT_SECONDS, max(wait, _jittered(attempt))))
            try:
                answer = self._session.post(
                    f"{self._url}/api/v1/{path}",
                    params=self._limits,
                    data={**form, "stats": "true"},
                    auth=self._auth,
                    timeout=self._timeout,
                    stream=True,
                )
                _read_within(answer, self._timeout)
            except (requests.RequestException, HTTPError, OSError) as error:
                problem, wait = f"could not be reached ({type(error).__name__})", 0.0
                continue
            if answer.status_code in _TRY_AGAIN:
                problem, wait = f"answered {_described(answer)}", _retry_after(answer)
                continue
            if _is_too_much(answer):
                raise MetricsTooLargeError(self._says(f"answered {_described(answer)}", form))
            if not answer.ok:
                raise MetricsAnswerError(self._says(f"answered {_described(answer)}", form))
            try:
                body = from_json(answer.content)  # a third faster than `json`, and equal labels are one object
            except ValueError:
                problem, wait = f"answered {answer.status_code} with something that is not whole JSON", 0.0
                continue
            data = self._checked(body, form)
            tally.add("Queries", 1)
            tally.add("SamplesProcessed", _samples_processed(data))
            return data
        raise MetricsUnavailableError(self._says(f"{problem}, {ATTEMPTS} times", form))

    def _checked(self, body: Any, form: Mapping[str, str]) -> Any:
        if not isinstance(body, dict) or body.get("status") != "success" or "data" not in body:
            told = body.get("error", body) if isinstance(body, dict) else body
            raise MetricsAnswerError(self._says(f"refused: {str(told)[:_SHOWN]}", form))
        if body.get("warnings"):
            # A warning says that the answer may be partial, and half an answer must not become a figure.
            raise MetricsAnswerError(self._says(f"answered with a warning: {str(body['warnings'][0])[:_SHOWN]}", form))
        if body.get("isPartial"):  # VictoriaMetrics' cluster version, while some of its storage nodes are away
            raise MetricsAnswerError(self._says("answered with a part of the data only (isPartial)", form))
        return body["data"]

    def _says(self, what: str, form: Mapping[str, str]) -> str:
        query = " ".join(form["query"].split())
        shown = query if len(query) <= _SHOWN else query[:_SHOWN] + "…"
        return f"cluster {self._cluster}: Prometheus at {self._url} {what} (query: {shown})"


def _samples_processed(data: Any) -> float:
    """What a query cost the server, which AMP bills; 0 where it does not tell."""
    try:
        return float(data["stats"]["samples"]["totalQueryableSamples"])
    except (KeyError, TypeError, ValueError):
        return 0.0


def _read_within(answer: requests.Response, seconds: float) -> None:
    """Read an answer's body: `requests` itself bounds only the wait for the next byte, and bytes can drip for hours.

    Raises:
        urllib3.exceptions.HTTPError: the connection ended before the answer did.
        requests.ReadTimeout: it did not end in time.
    """
    until = time.monotonic() + seconds
    parts = []
    while part := answer.raw.read1(_PIECE, decode_content=True):
        parts.append(part)
        if time.monotonic() > until:
            answer.close()
            raise requests.ReadTimeout(f"the answer did not end within {seconds:g} seconds")
    answer._content = b"".join(parts)  # where `requests` itself keeps it
    answer._content_consumed = True  # type: ignore[attr-defined]  # the connection is free for the next query


def _without_stale_markers(rows: Any) -> Any:
    """Leave out staleness markers, which VictoriaMetrics answers as NaN where raw samples are asked for.

    It stores no other NaN. Prometheus leaves the markers out by itself, and its answers carry `stats`.
    """
    if not any("values" in row for row in rows):
        return rows
    kept = ({**row, "values": [sample for sample in row["values"] if sample[1] != "NaN"]} for row in rows)
    return [row for row in kept if row["values"]]


def _series(row: Any) -> Series:
    """One series, refused unless its labels and values are text, as Prometheus writes them."""
    labels = row["metric"]
    told = row["values"] if "values" in row else [row["value"]]
    samples = tuple([(round(at * 1000), value) for at, value in told if type(value) is str])
    if type(labels) is not dict or len(samples) != len(told):
        raise ValueError("labels or values of another type")
    return Series(labels, samples)


def parse_duration(text: str) -> timedelta | None:
    """A Prometheus duration such as `15d` or `1y2w`; None where it is not one."""
    units = {"y": 365 * 86400.0, "w": 7 * 86400.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    if not re.fullmatch(r"(\d+(ms|[ywdhms]))+", text):
        return None
    return timedelta(seconds=sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)(ms|[ywdhms])", text)))


def _seconds(moment: datetime) -> str:
    milliseconds = to_ms(moment)
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def _jittered(attempt: int) -> float:
    """Full jitter, so that many functions that were refused together do not come back together."""
    return random.uniform(0.5, 1.0) * BACKOFF_SECONDS * 2.0 ** (attempt - 1)  # noqa: S311 - not for secrets


def _is_too_much(answer: requests.Response) -> bool:
    """AMP's 413 for answers over 50 MB, and the 422 of Prometheus and VictoriaMetrics for queries over their limits.

    Not what our own limit refuses: asked in parts, it would cost as much. Nor VictoriaMetrics' limit on the query's
    length, which smaller parts do not shorten.
    """
    if answer.status_code == requests.codes.request_entity_too_large:
        return True
    is_unprocessable = answer.status_code == requests.codes.unprocessable_entity
    if not is_unprocessable:
        return False
    is_over_samples = "too many samples" in answer.text and "threshold" not in answer.text
    return is_over_samples or ("-search.max" in answer.text and QUERY_LENGTH_LIMIT not in answer.text)


def _retry_after(answer: requests.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0


def _described(answer: requests.Response) -> str:
    """A refusal's status and reason: Prometheus' JSON, or the plain text and HTML of what stands before it."""
    try:
        body = answer.json()
        told = str(body["error"]) if isinstance(body, dict) and "error" in body else ""
    except ValueError:
        told = " ".join(answer.text.split())
    return f"{answer.status_code} {answer.reason}" + (f": {told[:_SHOWN]}" if told else "")
