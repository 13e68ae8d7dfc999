"""A client of Prometheus' query API that never takes a partial response for a complete one.

Each query ends in time and within a memory limit, whatever the server does (docs/decisions/0062).
"""

import math
import random
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from operator import itemgetter, lt
from typing import Any, NamedTuple

import requests
from pydantic_core import from_json
from requests.auth import AuthBase

from gpucost.core.errors import MetricsResponseError, MetricsTooLargeError, MetricsUnavailableError
from gpucost.core.hours import HOUR, to_epoch_ms
from gpucost.runtime.bounded_http import (
    ACCEPTED_ENCODING,
    MAX_ERROR_BODY_BYTES,
    REQUEST_ERRORS,
    BoundedHttp,
    HttpResponse,
    ResponseTooLargeError,
    connection_problem,
    is_timeout,
    retry_after,
)
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.observability import tally
from gpucost.sources.prometheus.memory_budget import MAX_RESPONSE_BYTES, MemoryBudget

MAX_ATTEMPTS = 4
BACKOFF_SECONDS = 0.5
MAX_WAIT_SECONDS = 10.0
SAMPLES_LIMIT_PARAMETER = "max_samples_processed_error_threshold"
"""AMP's URL parameter: AMP refuses a query that exceeds the limit, free of charge (AMP's API reference, QueryMetrics).

AMP also has a parameter for a warning. It is not sent, because a response with a warning may be partial.
"""
QUERY_LENGTH_FLAG = "-search.maxQueryLen"
"""The flag that VictoriaMetrics names when it refuses a query as too long."""
INFORMATION_TIMEOUT_SECONDS = 10.0
_RETRYABLE_STATUSES = {429, 500, 502, 503, 504}
_MAX_REDIRECTS = 3
_MAX_MESSAGE_TEXT = 300
_MAX_TIME_MS = to_epoch_ms(datetime.max.replace(tzinfo=UTC))
_TYPES = frozenset([(str, float), (str, int)])
"""Types of a sample's value and time. A truth value is no time."""
_MALFORMED_ERRORS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError)
"""Errors of parsing a response that does not have Prometheus' format."""


class Series(NamedTuple):
    """One series of a query's result: its labels, and its samples as (milliseconds, value as text)."""

    labels: Mapping[str, str]
    samples: tuple[tuple[int, str], ...]


class QueryResponse(NamedTuple):
    """A query's result type (`vector` or `matrix`) and series."""

    type: Any
    series: list[Series]


class _RetryableFailure(NamedTuple):
    """Why an attempt failed, and how many seconds the server asks to wait before the next one."""

    problem: str
    retry_after_seconds: float = 0.0
    is_unreachable: bool = False
    """Whether the server got no query, so that the query is not the reason."""


class _NotJsonError(Exception):
    """A response is not complete JSON: a proxy sent it, or the connection broke."""


_QUERY_OPTIONS = {"stats": "true", "max_lookback": "5m"}
"""Sent with every query. Prometheus looks back five minutes for the newest sample. VictoriaMetrics would look back as
far as the query's step, and return series that ended within the hour as if they still existed at its end."""


class PrometheusClient:
    """Queries one cluster's Prometheus.

    Args:
        url: base URL, to which `/api/v1/…` is appended.
        cluster: name for error messages.
        auth: signs each request.
        headers: additional headers of each request.
        ca_certificates: as of `BoundedHttp`.
        timeout: seconds for one attempt, from resolving the host name to the last byte of the response.
        deadline: for all queries together, with retries and waits. A query that fails permanently cancels it, so that
            no other query is started.
        budget: memory for all responses together; None: each response has its own budget.
        max_samples: limit above which AMP refuses a query; None sends no limit.
        sleep: waits between attempts; None: waits at most until the deadline.
        max_answer_bytes: largest response, decompressed.
    """

    def __init__(
        self,
        url: str,
        *,
        cluster: str,
        auth: AuthBase | None = None,
        headers: Mapping[str, str] | None = None,
        ca_certificates: str | None = None,
        timeout: float = 60,
        deadline: Deadline | None = None,
        budget: MemoryBudget | None = None,
        max_samples: int | None = None,
        sleep: Callable[[float], None] | None = None,
        max_answer_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._url = url.rstrip("/")
        self._cluster = cluster
        self._auth = auth
        self._headers = {**(headers or {}), "Accept-Encoding": ACCEPTED_ENCODING, "User-Agent": "gpucost"}
        self._timeout = timeout
        self._deadline = deadline or Deadline(math.inf)
        self._budget = budget
        self._limits = {} if max_samples is None else {SAMPLES_LIMIT_PARAMETER: str(max_samples)}
        self._sleep = sleep or self._deadline.wait
        self._max_answer_bytes = max_answer_bytes
        self._http = BoundedHttp(self._url, ca_certificates)

    def query_range(self, query: str, first: datetime, last: datetime, step: timedelta = HOUR) -> list[Series]:
        """Evaluate a query at regular steps from the first time to the last.

        Raises:
            MetricsUnavailableError: no response after retries.
            MetricsResponseError: a response that must not be used.
        """
        form = {
            "query": query,
            "start": _format_time(first),
            "end": _format_time(last),
            "step": str(int(step.total_seconds())),
        }
        return self._query_series("query_range", form)

    def query(self, query: str, at: datetime) -> list[Series]:
        """Evaluate a query at one time. Each series has one sample.

        Raises:
            MetricsUnavailableError, MetricsResponseError: see `query_range`.
        """
        return self._query_expecting("vector", "query", {"query": query, "time": _format_time(at)})

    def raw_samples(self, selector: str, start: datetime, end: datetime) -> list[Series]:
        """Every sample of a selector's series in `(start, end]`, as it was scraped.

        Raises:
            MetricsUnavailableError, MetricsResponseError: see `query_range`.
        """
        milliseconds = to_epoch_ms(end) - to_epoch_ms(start)
        return self._query_series("query", {"query": f"{selector}[{milliseconds}ms]", "time": _format_time(end)})

    def retention(self) -> timedelta | None:
        """How long the server keeps samples; None if it does not say, such as AMP."""
        information = self.server_information("status/runtimeinfo")
        text = information.get("storageRetention") if isinstance(information, dict) else None
        return parse_duration(text.split(" ")[0]) if isinstance(text, str) else None

    def server_information(self, path: str) -> Any:
        """The data of a response about the server itself, such as `status/buildinfo`; None if it does not answer it."""
        try:
            response = self._send_request("GET", path, None, INFORMATION_TIMEOUT_SECONDS, MAX_ERROR_BODY_BYTES)
            return from_json(response.body)["data"] if response.status == requests.codes.ok else None
        except (*REQUEST_ERRORS, *_MALFORMED_ERRORS, ResponseTooLargeError, MetricsUnavailableError):
            return None

    def cancel(self, reason: str) -> None:
        """Start no further query or attempt, and cancel those under way."""
        self._deadline.cancel(reason)

    def _query_series(self, path: str, form: Mapping[str, str]) -> list[Series]:
        return self._query_expecting("matrix", path, form)

    def _query_expecting(self, result_type: str, path: str, form: Mapping[str, str]) -> list[Series]:
        result = self._send_query(path, form)
        if result.type != result_type:
            raise MetricsResponseError(
                self._error_message(
                    f"answered with a {str(result.type)[:_MAX_MESSAGE_TEXT]} instead of a {result_type}", form
                )
            )
        return result.series

    def _send_query(self, path: str, form: Mapping[str, str]) -> QueryResponse:
        """POST a query and retry it while that can help. Return complete results only."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if self._deadline.has_passed():
                problem = f"was not queried: the {self._deadline.seconds:.3g} s for all queries are used up"
                raise MetricsUnavailableError(self._deadline.cancel_reason or self._error_message(problem, form))
            outcome = self._send_once(path, form)
            if isinstance(outcome, QueryResponse):
                return outcome
            if isinstance(outcome, MetricsResponseError):
                raise outcome
            failure = outcome
            wait = min(MAX_WAIT_SECONDS, max(failure.retry_after_seconds, _retry_delay(attempt)))
            has_time = self._deadline.remaining() > wait
            if attempt == MAX_ATTEMPTS or not has_time:
                break
            self._sleep(wait)
        times = f", {attempt} times" if attempt > 1 else ""
        out_of_time = "" if has_time else ", and the time for all queries is used up"
        # The failure that canceled this query came first, so it is the one to report.
        problem = f"{failure.problem}{times}{out_of_time}"
        reason = self._deadline.cancel_reason or self._error_message(problem, None if failure.is_unreachable else form)
        self.cancel(reason)
        raise MetricsUnavailableError(reason)

    def _send_once(
        self, path: str, form: Mapping[str, str]
    ) -> "QueryResponse | MetricsResponseError | _RetryableFailure":
        """Send a query once. Errors are returned, not raised: a raised error keeps the large response alive."""
        seconds = min(self._timeout, self._deadline.remaining())
        try:
            response = self._send_request("POST", path, form, self._timeout, self._max_answer_bytes)
            if response.status in _RETRYABLE_STATUSES:
                return _RetryableFailure(
                    f"answered {_describe_refusal(response)}", retry_after(response.headers) or 0.0
                )
            return self._parse_response(response)
        except REQUEST_ERRORS as error:
            if is_timeout(error):
                return _RetryableFailure(f"did not answer within {seconds:.3g} s")
            return _RetryableFailure(f"could not be reached: {connection_problem(error)}", is_unreachable=True)
        except _NotJsonError:
            if response.text(_MAX_MESSAGE_TEXT).lstrip().startswith("<"):
                return _RetryableFailure("answered 200 with an HTML page instead of a response of Prometheus' API")
            return _RetryableFailure("answered 200 with incomplete or invalid JSON")
        except ResponseTooLargeError as error:
            return MetricsTooLargeError(self._error_message(f"answered {error}", form))
        except MetricsResponseError as error:
            return type(error)(self._error_message(str(error), form))

    def _send_request(
        self, method: str, path: str, form: Mapping[str, str] | None, seconds: float, limit: int
    ) -> HttpResponse:
        request = requests.Request(
            method,
            f"{self._url}/api/v1/{path}",
            params=self._limits if form else None,
            data={**form, **_QUERY_OPTIONS} if form else None,
            headers=self._headers,
            auth=self._auth,
        )
        return self._http.send(request.prepare, deadline=Deadline(seconds, within=self._deadline), limit=limit)

    def _parse_response(self, response: HttpResponse) -> QueryResponse:
        """Parse a response.

        Raises:
            MetricsResponseError: the response must not be used; the message says what the server did.
        """
        if _is_too_large(response):
            raise MetricsTooLargeError(f"answered {_describe_refusal(response)}")
        if response.status // 100 == _MAX_REDIRECTS:
            location = " ".join(response.headers.get("Location", "").split())[:_MAX_MESSAGE_TEXT]
            raise MetricsResponseError(
                f"redirects to {location!r}, which is not followed; set prometheus.url to Prometheus' own address"
            )
        if response.status != requests.codes.ok:
            raise MetricsResponseError(f"answered {_describe_refusal(response)}")
        budget = self._budget or MemoryBudget()
        with budget.parsing_lock:
            budget.admit(response.body)
            try:
                document = from_json(response.body)  # a third faster than `json`, and equal labels share one object
            except ValueError as error:
                raise _NotJsonError from error
            data = _response_data(document, response)
            tally.add("Queries", 1)
            tally.add("SamplesProcessed", _samples_processed(data))
            try:
                # Prometheus' responses contain `stats`, which the request asks for. VictoriaMetrics' do not.
                result = QueryResponse(
                    data["resultType"], _parse_rows(data["result"], with_markers="stats" not in data)
                )
            except _MALFORMED_ERRORS as error:
                raise MetricsResponseError("answered in a format that is not Prometheus'") from error
            budget.charge_series(result.series, response.body)
            return result

    def _error_message(self, problem: str, form: Mapping[str, str] | None) -> str:
        sentence = f"cluster {self._cluster}: Prometheus at {self._url} {problem}"
        if form is None:
            return sentence
        query = " ".join(form["query"].split())
        shown = query if len(query) <= _MAX_MESSAGE_TEXT else query[:_MAX_MESSAGE_TEXT] + "…"
        return f"{sentence} (query: {shown})"


def _response_data(document: Any, response: HttpResponse) -> Any:
    """The data of a complete, successful response."""
    if not isinstance(document, dict) or document.get("status") != "success" or "data" not in document:
        raise MetricsResponseError(f"refused: {_error_reason(document) or response.text(_MAX_MESSAGE_TEXT)}")
    if warnings := document.get("warnings"):
        # With a warning, the response may be partial, and partial data must not become a figure.
        first = warnings[0] if isinstance(warnings, list) else warnings
        warning = first[:_MAX_MESSAGE_TEXT] if isinstance(first, str) else type(first).__name__
        raise MetricsResponseError(f"answered with a warning: {warning}")
    if document.get("isPartial"):  # VictoriaMetrics' cluster version, while some of its storage nodes are away
        raise MetricsResponseError("answered with partial data (isPartial)")
    return document["data"]


def _samples_processed(data: Any) -> float:
    """The samples that the server processed, which AMP bills; 0 if it does not say."""
    try:
        samples = float(data["stats"]["samples"]["totalQueryableSamples"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0.0
    return samples if 0 <= samples < math.inf else 0.0


def _parse_rows(rows: list[Any], *, with_markers: bool = False) -> list[Series]:
    """Convert parsed rows to series. Rows are freed one by one, so that memory never holds the response twice.

    Args:
        rows: the rows; the list is emptied.
        with_markers: whether raw samples may contain staleness markers. VictoriaMetrics returns them as NaN and stores
            no other NaN. Prometheus leaves them out.
    """
    rows.reverse()
    series = []
    while rows:
        row = rows.pop()
        if with_markers and "values" in row:
            row["values"] = [sample for sample in row["values"] if sample[1] != "NaN"]
            if not row["values"]:
                continue
        series.append(_parse_series(row))
    # Raises TypeError unless all labels are text. Rows are many: no bytecode for each.
    sum(map(str.__len__, chain.from_iterable(map(dict.values, map(itemgetter(0), series)))))
    return series


def _parse_series(row: Any) -> Series:
    """Convert one row, whose labels `_parse_rows` checks.

    Refuse values that are not text, and samples that are not in the order of their times: Prometheus and
    VictoriaMetrics return neither.
    """
    labels = row["metric"]
    pairs = row["values"] if "values" in row else [row["value"]]
    if len(pairs) == 1:  # nearly all series of an hour; what follows says the same of many samples
        ((seconds, text),) = pairs
        time = round(seconds * 1000)
        if (type(text), type(seconds)) not in _TYPES or not 0 <= time <= _MAX_TIME_MS:
            raise ValueError("time or value have another type, or the time is not one")
        return Series(labels, ((time, text),))
    samples = tuple([(round(seconds * 1000), value) for seconds, value in pairs if type(value) is str])
    if not samples or len(samples) != len(pairs) or bool in set(map(type, map(itemgetter(0), pairs))):
        raise ValueError("values have another type, or there are no samples")
    times = list(map(itemgetter(0), samples))  # raw samples are many: no bytecode for each
    if not 0 <= times[0] <= times[-1] <= _MAX_TIME_MS or not all(map(lt, times, islice(times, 1, None))):
        raise ValueError("samples are not in the order of their times")
    return Series(labels, samples)


def parse_duration(text: str) -> timedelta | None:
    """Parse a Prometheus duration such as `15d` or `1y2w`; None if the text is not a duration."""
    units = {"y": 365 * 86400.0, "w": 7 * 86400.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    if not re.fullmatch(r"([0-9]{1,9}(ms|[ywdhms])){1,7}", text):
        return None
    seconds = sum(int(n) * units[unit] for n, unit in re.findall(r"([0-9]+)(ms|[ywdhms])", text))
    return timedelta(seconds=min(seconds, timedelta.max.total_seconds() / 2))


def _format_time(time: datetime) -> str:
    milliseconds = to_epoch_ms(time)
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def _retry_delay(attempt: int) -> float:
    """Seconds to wait after an attempt, with jitter, so that many functions do not retry at the same moment."""
    return random.uniform(0.5, 1.0) * BACKOFF_SECONDS * 2.0 ** (attempt - 1)  # noqa: S311 - not for secrets


def _is_too_large(response: HttpResponse) -> bool:
    """Whether splitting the query may help: 413 (AMP, responses over 50 MB) or 422 (Prometheus and VictoriaMetrics).

    Two refusals do not count: those of our own sample limit, because shards cost as much together, and those of
    VictoriaMetrics' limit on the query's length, because shards do not shorten it.
    """
    if response.status == requests.codes.request_entity_too_large:
        return True
    if response.status != requests.codes.unprocessable_entity:
        return False
    text = response.text(MAX_ERROR_BODY_BYTES)
    is_over_samples = "too many samples" in text and "threshold" not in text
    return is_over_samples or ("-search.max" in text and QUERY_LENGTH_FLAG not in text)


def _describe_refusal(response: HttpResponse) -> str:
    """A refusal's status and reason, from Prometheus' JSON or from the text or HTML of a proxy."""
    try:
        reason = _error_reason(from_json(response.body))
    except ValueError:
        reason = ""
    reason = reason or response.text(_MAX_MESSAGE_TEXT)
    if reason.lstrip().startswith("<"):
        reason = "an HTML page instead of a response of Prometheus' API"
    phrase = " ".join(response.reason.split())[:_MAX_MESSAGE_TEXT]
    return f"{response.status} {phrase}" + (f": {reason}" if reason else "")


def _error_reason(document: Any) -> str:
    """The error message in Prometheus' JSON, or ""."""
    error = document.get("error") if isinstance(document, dict) else None
    return " ".join(error.split())[:_MAX_MESSAGE_TEXT] if isinstance(error, str) else ""
