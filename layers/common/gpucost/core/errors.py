"""Every error that the product raises on purpose, as a tree; adapters turn what libraries raise into these.

GpuCostError
├── InvalidInputError        the caller's input is wrong: names what, and what is allowed  (exit 2, HTTP 400)
│   ├── ParameterError       one parameter of a request: which one, and what is allowed
│   ├── SettingsError        a settings document that does not validate
│   └── MessageError         an event or message that does not fit its model → dead-letter queue with the reason
├── AccessDeniedError        the caller may not see this: says what is missing             (HTTP 403)
├── NotFoundError            what was asked for does not exist                              (HTTP 404)
├── SettingsMissingError     no settings have been pushed yet
├── ConflictError            somebody else wrote first                                      (HTTP 409)
└── SourceError              a source of data did not answer as it should                   (exit 1, HTTP 502)
    ├── CredentialsError           no AWS credentials, or they cannot be used
    ├── ExpiredError               it has expired: trying again does not help
    ├── IntegrityError               what is stored cannot be read, or is missing: names the item
    ├── MetricsUnavailableError    unreachable, timed out, throttled, 5xx: worth trying again
    └── MetricsResponseError         an answer that cannot be used: refused query, not JSON, truncated, warnings
        ├── MetricsTooLargeError   asking for less at a time may help
        └── HoursTooLargeError     asking for fewer hours at a time may help
"""


class GpuCostError(Exception):
    """Base of all; the message is one sentence that an operator can act on."""


class InvalidInputError(GpuCostError):
    """The caller's input is wrong."""


class ParameterError(InvalidInputError):
    """One parameter of a request is wrong; `parameter` names it."""

    def __init__(self, parameter: str, detail: str) -> None:
        super().__init__(f"{parameter}: {detail}")
        self.parameter = parameter
        self.detail = detail


class SettingsError(InvalidInputError):
    """A settings document does not validate."""


class MessageError(InvalidInputError):
    """An event or message does not fit its model."""


class AccessDeniedError(GpuCostError):
    """The caller may not see this; the message says what is missing and names nobody."""


class NotFoundError(GpuCostError):
    """What was asked for does not exist."""


class SettingsMissingError(GpuCostError):
    """No settings have been pushed to this deployment yet."""


class ConflictError(GpuCostError):
    """A conditional write lost against another writer."""


class SourceError(GpuCostError):
    """A source of data did not answer as it should."""


class CredentialsError(SourceError):
    """There are no AWS credentials, or they cannot be used."""


class ExpiredError(SourceError):
    """What was asked for has expired; trying again does not help."""


class IntegrityError(SourceError):
    """What is stored cannot be read, or is not there though it should be; trying again does not help."""


class MetricsUnavailableError(SourceError):
    """Prometheus could not be reached or asked to be left alone; worth trying again."""


class MetricsResponseError(SourceError):
    """Prometheus answered with something that must not be used."""


class MetricsTooLargeError(MetricsResponseError):
    """An answer is too large: for Prometheus (AMP: 50 MB, or too many samples), or for this process's memory."""


class HoursTooLargeError(MetricsResponseError):
    """The answers for some hours are too large together, though none is by itself."""
