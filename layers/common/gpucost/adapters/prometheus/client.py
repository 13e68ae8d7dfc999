"""A client for Prometheus' query API that never takes half an answer for a whole one.

Each query ends in time and within a bound of memory, whatever the server does (docs/decisions/0062).
"""

import math
import random
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import requests
from pydantic_core import from_json
from requests.auth import AuthBase

from gpucost.adapters.bounded_http import (
    ENCODINGS,
    FAILURES,
    REFUSAL_LIMIT,
    Answer,
    AnswerTooLargeError,
    BoundedHttp,
    is_timeout,
    retry_after,
)
from gpucost.adapters.prometheus.memory_budget import ANSWER_BYTES, MemoryBudget
from gpucost.deadline import Deadline
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
RETENTION_SECONDS = 10.0
_TRY_AGAIN = {429, 500, 502, 503, 504}
_REDIRECTS = 3
_SHOWN = 300
_UNUSABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError)
"""What reading an answer of another form can end with."""
_OPTIONS = {"stats": "true", "max_lookback": "5m"}
"""Sent with every query. Prometheus looks back five minutes for the newest sample; VictoriaMetrics would look back as
far as the query's step, and answer series that ended within the hour as if they were still there at its end."""


class Series(NamedTuple):
    """One series of an answer: its labels and its samples as (milliseconds, value as text)."""

    labels: Mapping[str, str]
    samples: tuple[tuple[int, str], ...]


class Result(NamedTuple):
    """What a query gives: what Prometheus calls its type, and its series."""

    kind: Any
    series: list[Series]


class _Trouble(NamedTuple):
    """Why an attempt failed, and how many seconds the server asks to wait."""

    problem: str
    wait: float = 0.0


class _NotJsonError(Exception):
    """An answer is not JSON, or not whole: something between us and Prometheus made it, or the connection broke."""


class PrometheusClient:
    """Asks one cluster's Prometheus.

    Args:
        url: base address, to which `/api/v1/…` is added.
        cluster: named in errors.
        auth: signs each request.
        timeout: seconds for one attempt, from resolving the name to the last byte of the answer.
        deadline: for all queries together, with their retries and waits. A query that fails for good ends it: none of
            its other queries starts then.
        budget: memory for all answers together; None: each answer has one of its own.
        most_samples: AMP is to refuse a query that would process more; None sends no such limit.
        sleep: waits between attempts; None: until the deadline passes at the latest.
    """

    def __init__(
        self,
        url: str,
        *,
        cluster: str,
        auth: AuthBase | None = None,
        timeout: float = 60,
        deadline: Deadline | None = None,
        budget: MemoryBudget | None = None,
        most_samples: int | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._cluster = cluster
        self._auth = auth
        self._timeout = timeout
        self._deadline = deadline or Deadline(math.inf)
        self._budget = budget
        self._limits = {} if most_samples is None else {SAMPLES_LIMIT: str(most_samples)}
        self._sleep = sleep or self._deadline.wait
        self._http = BoundedHttp(self._url)

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
        return self._of_kind("vector", "query", {"query": query, "time": _seconds(at)})

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
            answer = self._send("GET", "status/runtimeinfo", None, RETENTION_SECONDS, REFUSAL_LIMIT)
            text = from_json(answer.body)["data"]["storageRetention"]
            return parse_duration(text.split(" ")[0])
        except (*FAILURES, *_UNUSABLE, AnswerTooLargeError, MetricsUnavailableError):
            return None

    def end(self, reason: str) -> None:
        """Start no further query or attempt, and break off those under way."""
        self._deadline.end(reason)

    def _series(self, path: str, form: Mapping[str, str]) -> list[Series]:
        return self._of_kind("matrix", path, form)

    def _of_kind(self, kind: str, path: str, form: Mapping[str, str]) -> list[Series]:
        result = self._ask(path, form)
        if result.kind != kind:
            raise MetricsAnswerError(self._says(f"answered a {str(result.kind)[:_SHOWN]} for a {kind}", form))
        return result.series

    def _ask(self, path: str, form: Mapping[str, str]) -> Result:
        """POST a query, again and again while that can help; only a whole success comes back."""
        for attempt in range(1, ATTEMPTS + 1):
            if self._deadline.has_passed():
                used_up = f"was not asked: the {self._deadline.seconds:.3g} s for all queries are used up"
                raise MetricsUnavailableError(self._deadline.reason or self._says(used_up, form))
            outcome = self._attempt(path, form)
            if isinstance(outcome, Result):
                return outcome
            if isinstance(outcome, MetricsAnswerError):
                raise outcome
            trouble = outcome
            wait = min(LONGEST_WAIT_SECONDS, max(trouble.wait, _jittered(attempt)))
            has_time = self._deadline.remaining() > wait
            if attempt == ATTEMPTS or not has_time:
                break
            self._sleep(wait)
        times = f", {attempt} times" if attempt > 1 else ""
        over = "" if has_time else ", and the time for all queries is used up"
        # Another query that failed first broke this one off; its reason is the one to report.
        reason = self._deadline.reason or self._says(f"{trouble.problem}{times}{over}", form)
        self.end(reason)
        raise MetricsUnavailableError(reason)

    def _attempt(self, path: str, form: Mapping[str, str]) -> "Result | MetricsAnswerError | _Trouble":
        """Ask once. Errors are given back and not raised: one that was raised keeps the answer that it is about."""
        seconds = min(self._timeout, self._deadline.remaining())
        try:
            answer = self._send("POST", path, form, self._timeout, ANSWER_BYTES)
            if answer.status in _TRY_AGAIN:
                return _Trouble(f"answered {_described(answer)}", retry_after(answer.headers) or 0.0)
            return self._read(answer)
        except FAILURES as error:
            what = f"could not be reached ({type(error).__name__})"
            return _Trouble(f"did not answer within {seconds:.3g} s" if is_timeout(error) else what)
        except _NotJsonError:
            return _Trouble("answered 200 with something that is not whole JSON")
        except AnswerTooLargeError as error:
            return MetricsTooLargeError(self._says(f"answered {error}", form))
        except MetricsAnswerError as error:
            return type(error)(self._says(str(error), form))

    def _send(self, method: str, path: str, form: Mapping[str, str] | None, seconds: float, limit: int) -> Answer:
        request = requests.Request(
            method,
            f"{self._url}/api/v1/{path}",
            params=self._limits if form else None,
            data={**form, **_OPTIONS} if form else None,
            headers={"Accept-Encoding": ENCODINGS, "User-Agent": "gpucost"},
            auth=self._auth,
        )
        return self._http.send(request.prepare, deadline=Deadline(seconds, within=self._deadline), limit=limit)

    def _read(self, answer: Answer) -> Result:
        """The result that an answer holds.

        Raises:
            MetricsAnswerError: it must not be used; says what the server did.
        """
        if _is_too_much(answer):
            raise MetricsTooLargeError(f"answered {_described(answer)}")
        if answer.status // 100 == _REDIRECTS:
            to = " ".join(answer.headers.get("Location", "").split())[:_SHOWN]
            raise MetricsAnswerError(
                f"redirects to {to!r}, which is not followed; set prometheus.url to where Prometheus is"
            )
        if answer.status != requests.codes.ok:
            raise MetricsAnswerError(f"answered {_described(answer)}")
        budget = self._budget or MemoryBudget()
        with budget.parsing:
            budget.admit(answer.body)
            try:
                document = from_json(answer.body)  # a third faster than `json`, and equal labels are one object
            except ValueError as error:
                raise _NotJsonError from error
            data = _checked(document, answer)
            tally.add("Queries", 1)
            tally.add("SamplesProcessed", _samples_processed(data))
            try:
                # The answers of Prometheus carry `stats`, as they are asked to; those of VictoriaMetrics do not.
                result = Result(data["resultType"], _taken(data["result"], with_markers="stats" not in data))
            except _UNUSABLE as error:
                raise MetricsAnswerError("answered in a form that is not Prometheus' own") from error
            budget.charge_series(result.series, answer.body)
            return result

    def _says(self, what: str, form: Mapping[str, str]) -> str:
        query = " ".join(form["query"].split())
        shown = query if len(query) <= _SHOWN else query[:_SHOWN] + "…"
        return f"cluster {self._cluster}: Prometheus at {self._url} {what} (query: {shown})"


def _checked(document: Any, answer: Answer) -> Any:
    """The data of a whole success."""
    if not isinstance(document, dict) or document.get("status") != "success" or "data" not in document:
        raise MetricsAnswerError(f"refused: {_reason(document) or answer.text(_SHOWN)}")
    if warnings := document.get("warnings"):
        # A warning says that the answer may be partial, and half an answer must not become a figure.
        first = warnings[0] if isinstance(warnings, list) else warnings
        told = first[:_SHOWN] if isinstance(first, str) else type(first).__name__
        raise MetricsAnswerError(f"answered with a warning: {told}")
    if document.get("isPartial"):  # VictoriaMetrics' cluster version, while some of its storage nodes are away
        raise MetricsAnswerError("answered with a part of the data only (isPartial)")
    return document["data"]


def _samples_processed(data: Any) -> float:
    """What a query cost the server, which AMP bills; 0 where it does not tell."""
    try:
        return float(data["stats"]["samples"]["totalQueryableSamples"])
    except (KeyError, TypeError, ValueError):
        return 0.0


def _taken(rows: list[Any], *, with_markers: bool = False) -> list[Series]:
    """The series of parsed rows, which are freed one after the other, so that an answer is not there twice.

    Args:
        rows: emptied.
        with_markers: raw samples may hold staleness markers, which VictoriaMetrics answers as NaN (it stores no other
            NaN). Prometheus leaves them out by itself.
    """
    rows.reverse()
    series = []
    while rows:
        row = rows.pop()
        if with_markers and "values" in row:
            row["values"] = [sample for sample in row["values"] if sample[1] != "NaN"]
            if not row["values"]:
                continue
        series.append(_series(row))
    return series


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
    if not re.fullmatch(r"([0-9]{1,9}(ms|[ywdhms])){1,7}", text):
        return None
    seconds = sum(int(n) * units[unit] for n, unit in re.findall(r"([0-9]+)(ms|[ywdhms])", text))
    return timedelta(seconds=min(seconds, timedelta.max.total_seconds() / 2))


def _seconds(moment: datetime) -> str:
    milliseconds = to_ms(moment)
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def _jittered(attempt: int) -> float:
    """Full jitter, so that many functions that were refused together do not come back together."""
    return random.uniform(0.5, 1.0) * BACKOFF_SECONDS * 2.0 ** (attempt - 1)  # noqa: S311 - not for secrets


def _is_too_much(answer: Answer) -> bool:
    """AMP's 413 for answers over 50 MB, and the 422 of Prometheus and VictoriaMetrics for queries over their limits.

    Not what our own limit refuses: asked in parts, it would cost as much. Nor VictoriaMetrics' limit on the query's
    length, which smaller parts do not shorten.
    """
    if answer.status == requests.codes.request_entity_too_large:
        return True
    if answer.status != requests.codes.unprocessable_entity:
        return False
    text = answer.text(REFUSAL_LIMIT)
    is_over_samples = "too many samples" in text and "threshold" not in text
    return is_over_samples or ("-search.max" in text and QUERY_LENGTH_LIMIT not in text)


def _described(answer: Answer) -> str:
    """A refusal's status and reason: Prometheus' JSON, or the plain text and HTML of what stands before it."""
    try:
        reason = _reason(from_json(answer.body))
    except ValueError:
        reason = ""
    reason = reason or answer.text(_SHOWN)
    phrase = " ".join(answer.reason.split())[:_SHOWN]
    return f"{answer.status} {phrase}" + (f": {reason}" if reason else "")


def _reason(document: Any) -> str:
    """What Prometheus' JSON says is wrong."""
    error = document.get("error") if isinstance(document, dict) else None
    return " ".join(error.split())[:_SHOWN] if isinstance(error, str) else ""
