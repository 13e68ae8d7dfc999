"""Slack incoming webhook: Block Kit with a fallback text, and no name that could become markup."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import requests

from gpucost.core.errors import SourceError
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.notifiers.formatting import (
    detail_fields,
    headline,
    one_line,
    report_link,
    subject_fields,
    suggested_action,
    summary,
    top_waster_lines,
)
from gpucost.runtime.bounded_http import FAILURES, ResponseTooLargeError, post_json, retry_after
from gpucost.runtime.destinations import origin_of

ATTEMPTS = 3
TIMEOUT_SECONDS = 9.0
MAX_WAIT_SECONDS = 8
"""Three attempts and two such waits stay below the outbox's lease of 55 s."""
MAX_BLOCKS = 50
"""Slack's own limit of blocks in a message, and below of fields in a section and characters of a text."""
BLOCKS_PER_ALERT = 5
MAX_FIELDS = 10
MAX_TEXT_LENGTH = 3000
SLACK_HOSTS = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})
_JOINER = "\u2060"
_MARKUP = "*_~`@:/"


class SlackNotifier:
    """Posts to one incoming webhook; Slack knows no key by which it would take the same message once only.

    Args:
        secret: name of the secret whose value is the webhook's address.
        secret_value: reads a secret.
        host: of the webhook, where it is not Slack's own.
        public_url: the API's address, or "" for messages without links.
        sleep: waits between attempts.
    """

    max_batch_size = MAX_BLOCKS // BLOCKS_PER_ALERT
    needs_resend = False

    def __init__(
        self,
        secret: str,
        *,
        secret_value: Callable[[str], str],
        host: str | None = None,
        public_url: str = "",
        sleep: Callable[[float], None] = time.sleep,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._secret = secret
        self._secret_value = secret_value
        self._host = host
        self._public_url = public_url
        self._sleep = sleep
        self._timeout = timeout

    def send(self, notifications: Sequence[Notification]) -> None:
        """Post them as one message.

        Raises:
            SourceError: not delivered; the sentence never holds the webhook's address.
        """
        url = self._secret_value(self._secret).strip()
        self._check(url)
        body = message(notifications, self._public_url)
        for attempt in range(1, ATTEMPTS + 1):
            problem, wait = self._post(url, body, attempt)
            if problem is None:
                return
            if wait is None or attempt == ATTEMPTS:
                raise SourceError(f"Slack ({self._secret}) {problem}")
            self._sleep(wait)

    def _check(self, url: str) -> None:
        """Refuse what is no webhook: another secret's value, or an address that would show it on the way.

        Raises:
            SourceError: names the secret, never its value.
        """
        origin = origin_of(url)
        if origin is None:
            raise SourceError(f"secret {self._secret} does not hold a webhook's address (https://…)")
        if not origin.protects_secrets:
            raise SourceError(f"secret {self._secret} holds an http:// address; a webhook must be https://")
        allowed = {self._host} if self._host else SLACK_HOSTS
        if origin.scheme == "https" and origin.host not in allowed:
            raise SourceError(
                f"secret {self._secret} holds an address that is not of {' or '.join(sorted(allowed))}; for another "
                "service that takes Slack's webhooks, set host on the receiver"
            )

    def _post(self, url: str, body: dict[str, Any], attempt: int) -> tuple[str | None, float | None]:
        """What went wrong, and after how many seconds it is worth another try (None: it is not)."""
        backoff = float(2 ** (attempt - 1))
        try:
            answer = post_json(url, body, seconds=self._timeout)
        except (requests.RequestException, ResponseTooLargeError, ValueError) as error:
            return f"could not be asked ({type(error).__name__})", None
        except FAILURES as error:
            return f"could not be reached ({type(error).__name__})", backoff
        if answer.status == requests.codes.ok:
            return None, None
        if answer.status == requests.codes.too_many_requests:
            asked = retry_after(answer.headers)
            wait = backoff if asked is None else asked
            problem = f"asks to wait {wait:g} s (HTTP 429)"
            return problem, wait if wait <= MAX_WAIT_SECONDS else None
        if answer.status >= requests.codes.internal_server_error:
            return f"answered HTTP {answer.status}", backoff
        reason = one_line(answer.text(80)).replace(url, "…")
        return f"refused the message: HTTP {answer.status} {reason}".rstrip(), None


def message(news: Sequence[Notification], public_url: str = "") -> dict[str, Any]:
    """The webhook's body: names stand in plain-text objects, where Slack reads no markup, and are escaped as well."""
    sentences = [f"{headline(one)}: {summary(one, _inert)}" for one in news]
    text = sentences[0] if len(sentences) == 1 else f"{len(sentences)} GPU cost alerts: " + "; ".join(sentences)
    blocks = [block for one in news for block in _blocks(one, public_url)]
    return {"text": text[:MAX_TEXT_LENGTH], "blocks": blocks}


def _blocks(news: Notification, public_url: str) -> list[dict[str, Any]]:
    """At most five of them: what, who and how much, the worst workloads, what to do, where to read on."""
    mark = {"firing": "🔴", "repeat": "🔴", "resolved": "🟢", "digest": "📊"}[news.event]
    told = [*subject_fields(news.subject), *detail_fields(news)][:MAX_FIELDS]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(f"{mark} {headline(news)}")},
        {"type": "section", "fields": [_plain(f"{title}\n{escape(value)}") for title, value in told]},
    ]
    worst = top_waster_lines(news)
    if news.kind in {"data", "external", "sample"} and not worst:
        worst = [summary(news)]
    if worst:
        blocks.append({"type": "section", "text": _plain(escape("\n".join(worst)))})
    if remarks := " ".join(
        filter(None, (suggested_action(news), f"Note: {one_line(news.note, 500)}." if news.note else ""))
    ):
        blocks.append({"type": "context", "elements": [_plain(escape(remarks))]})
    link = report_link(news, public_url)
    if link is not None:
        blocks.append(
            {"type": "context", "elements": [{"type": "mrkdwn", "text": f"<{escape(link)}|Open the report>"}]}
        )
    return blocks


def escape(text: str) -> str:
    """Slack's three control characters as entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _inert(name: str) -> str:
    """A name for mrkdwn: a word joiner after each markup character keeps Slack from pairing, linking or mentioning."""
    return escape("".join(char + _JOINER if char in _MARKUP else char for char in one_line(name)))


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}
