"""The exceptions that the product raises on purpose, as a tree; adapters map the exceptions of libraries to these.

GpuCostError
├── InvalidInputError        invalid input: names the value, and what is allowed           (exit 2, HTTP 400)
│   ├── ParameterError       one parameter of a request: which one, and what is allowed
│   ├── SettingsError        a settings document or parameter file that does not validate
│   └── InvalidMessageError  an event or message that does not fit its model → dead-letter queue with the reason
├── AccessDeniedError        the caller lacks a permission: says which one                  (HTTP 403)
├── NotFoundError            the requested resource does not exist                          (HTTP 404)
├── SettingsMissingError     no settings have been pushed yet
├── ConflictError            another writer was first                                       (HTTP 409)
└── SourceError              a data source failed                                           (exit 1, HTTP 502)
    ├── CredentialsError           no AWS credentials, or they cannot be used
    ├── DataExpiredError           the data has expired: a retry does not help
    ├── IntegrityError             stored data is unreadable or missing: names the item
    ├── MetricsUnavailableError    unreachable, timed out, throttled, 5xx: a retry may help
    └── MetricsResponseError       an unusable response: rejected query, not JSON, truncated, warnings
        ├── MetricsTooLargeError   a smaller query may help
        └── HoursTooLargeError     a query of fewer hours may help
"""

from collections.abc import Collection


class GpuCostError(Exception):
    """Base class; the message is one sentence that an operator can act on."""


class InvalidInputError(GpuCostError):
    """The caller's input is invalid."""


class ParameterError(InvalidInputError):
    """One parameter of a request is invalid; `parameter` names it."""

    def __init__(self, parameter: str, detail: str) -> None:
        super().__init__(f"{parameter}: {detail}")
        self.parameter = parameter
        self.detail = detail


class SettingsError(InvalidInputError):
    """A settings document or parameter file does not validate.

    Args:
        fault: one sentence about the first fault. It is the message.
        further_faults: a sentence for each of the others.
    """

    def __init__(self, fault: str, *further_faults: str) -> None:
        super().__init__(fault)
        self.faults = (fault, *further_faults)


class InvalidMessageError(InvalidInputError):
    """An event or message does not match its model."""


class AccessDeniedError(GpuCostError):
    """The caller lacks a permission; the message says which one and reveals no names."""


class NotFoundError(GpuCostError):
    """The requested resource does not exist."""


class SettingsMissingError(GpuCostError):
    """No settings have been pushed to this deployment yet."""


class ConflictError(GpuCostError):
    """A conditional write failed because another writer was first."""


class SourceError(GpuCostError):
    """A data source failed or returned unusable data."""


class CredentialsError(SourceError):
    """There are no AWS credentials, or they cannot be used."""


class DataExpiredError(SourceError):
    """The requested data has expired; a retry does not help."""


class IntegrityError(SourceError):
    """Stored data is unreadable, or missing although it must exist; a retry does not help."""


class MetricsUnavailableError(SourceError):
    """Prometheus is unreachable or throttles requests; a retry may help."""


class MetricsResponseError(SourceError):
    """Prometheus returned a response that must not be used."""


class MetricsTooLargeError(MetricsResponseError):
    """A response is too large for Prometheus (AMP: 50 MB, or too many samples) or for this process's memory."""


class HoursTooLargeError(MetricsResponseError):
    """The responses for several hours are too large together, although each one alone is not."""


# What a misspelled name probably means.


def did_you_mean(name: str, allowed: Collection[str]) -> str:
    """Return `Did you mean NAME?` for the most similar of the allowed names; "" if none is similar."""
    from difflib import get_close_matches  # cold starts rarely need it

    similar = get_close_matches(name, allowed, n=1)
    return f"Did you mean {similar[0]}?" if similar else ""
