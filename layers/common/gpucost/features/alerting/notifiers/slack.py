"""Sends messages made of blocks to a Slack incoming webhook. Names cannot become markup."""

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import requests

from gpucost.core.errors import SourceError
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.notification_text import (
    figure_fields,
    headline,
    needs_sentence,
    report_link,
    single_line,
    subject_fields,
    suggested_action,
    summary,
    top_waster_lines,
)
from gpucost.features.alerting.ports import RefusedMessageError, is_refusal
from gpucost.runtime.bounded_http import (
    REQUEST_ERRORS,
    HttpResponse,
    ResponseTooLargeError,
    connection_problem,
    post_json,
    retry_after,
)
from gpucost.runtime.secrets import origin_of

MAX_ATTEMPTS = 3
TIMEOUT_SECONDS = 9.0
MAX_RETRY_WAIT_SECONDS = 8
"""Three attempts and two waits of this length take less than the outbox's lease of 55 s."""
MAX_BLOCKS = 50
"""Slack's limit of blocks in a message; below, of fields in a section."""
BLOCKS_PER_ALERT = 5
MAX_FIELDS = 10
MAX_BLOCKS_LENGTH = 12_000
"""Characters of a message's blocks as JSON. Slack refuses longer ones as too long. Its limit is 12,000
characters of text and some more for the blocks around them (https://github.com/slackapi/bolt-js/issues/2509)."""
MAX_FALLBACK_LENGTH = 3000
MAX_HEADER_LENGTH = 150
MAX_FIELD_LENGTH = 400
MAX_PARAGRAPH_LENGTH = 1800
MAX_LINK_LENGTH = 2500
"""These lengths, of characters in JSON, are so short that each alert fits into a message by itself."""
SLACK_HOSTS = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})
_WORD_JOINER = "\u2060"
_MARKUP_CHARACTERS = "*_~`@:/"
_CUT_ENTITY = re.compile(r"&[a-z]*$")


class SlackNotifier:
    """Posts to one incoming webhook. Slack has no key to deduplicate messages.

    Args:
        secret: name of the secret whose value is the webhook's URL.
        secret_value: reads a secret.
        host: the webhook's host, if it is not Slack's.
        public_url: the page's address; empty for messages without links.
        sleep: waits between attempts.
        timeout: seconds of an attempt.
        post: posts a body as JSON.
    """

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
        post: Callable[..., HttpResponse] = post_json,
    ) -> None:
        self._secret = secret
        self._secret_value = secret_value
        self._host = host
        self._public_url = public_url
        self._sleep = sleep
        self._timeout = timeout
        self._post_json = post

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        """Return how many notifications fit into a message (`Notifier`)."""
        length = 0
        for count, notification in enumerate(notifications[: MAX_BLOCKS // BLOCKS_PER_ALERT]):
            length += _json_length(_blocks(notification, self._public_url))
            if count and length > MAX_BLOCKS_LENGTH:
                return count
        return min(len(notifications), MAX_BLOCKS // BLOCKS_PER_ALERT)

    def send(self, notifications: Sequence[Notification]) -> None:
        """Post notifications as one message.

        Raises:
            RefusedMessageError: Slack refuses this message for good.
            SourceError: not delivered. The message never contains the webhook's URL.
        """
        url = self._secret_value(self._secret).strip()
        self._check_webhook_url(url)
        body = slack_message(notifications, self._public_url)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            problem, wait = self._post(url, body, attempt)
            if problem is None:
                return
            if wait is None or attempt == MAX_ATTEMPTS:
                raise SourceError(f"Slack ({self._secret}) {problem}")
            self._sleep(wait)

    def _check_webhook_url(self, url: str) -> None:
        """Refuse a value that is not a webhook's URL, and a URL without TLS.

        Raises:
            SourceError: the message names the secret, and never contains its value.
        """
        origin = origin_of(url)
        if origin is None:
            raise SourceError(f"secret {self._secret} does not contain a webhook's URL. Store https://… as its value")
        if not origin.protects_secrets:
            raise SourceError(f"secret {self._secret} contains an http:// URL; a webhook must be https://")
        allowed = {self._host} if self._host else SLACK_HOSTS
        if origin.scheme == "https" and origin.host not in allowed:
            raise SourceError(
                f"secret {self._secret} contains a URL of another host than {' or '.join(sorted(allowed))}; for a "
                "Slack-compatible service, set host on the receiver"
            )

    def _post(self, url: str, body: dict[str, Any], attempt: int) -> tuple[str | None, float | None]:
        """Post once, and return the error and after how many seconds to retry (None: no retry).

        Raises:
            RefusedMessageError: Slack refuses the message for good.
        """
        backoff = float(2 ** (attempt - 1))
        try:
            response = self._post_json(url, body, seconds=self._timeout)
        except (requests.RequestException, ResponseTooLargeError, ValueError) as error:
            return f"could not be called ({type(error).__name__})", None
        except REQUEST_ERRORS as error:
            return f"could not be reached: {connection_problem(error)}", backoff
        if response.status == requests.codes.ok:
            return None, None
        if response.status == requests.codes.too_many_requests:
            requested = retry_after(response.headers)
            wait = backoff if requested is None else requested
            return f"asks to retry after {wait:g} s (HTTP 429)", wait if wait <= MAX_RETRY_WAIT_SECONDS else None
        if response.status >= requests.codes.internal_server_error:
            return f"answered HTTP {response.status}", backoff
        reason = single_line(response.text(80)).replace(url, "…")
        problem = f"refused the message: HTTP {response.status} {reason}".rstrip()
        if is_refusal(response.status):
            raise RefusedMessageError(f"Slack ({self._secret}) {problem}")
        return problem, None


def slack_message(notifications: Sequence[Notification], public_url: str = "") -> dict[str, Any]:
    """Return a webhook's body.

    Names are in plain-text objects, where Slack reads no markup, and are escaped, too. The fallback text, of which
    notifications are made, has no markup (`mrkdwn`), and no name in it is a link or mention.
    """
    sentences = [
        f"{headline(notification)}: {summary(notification, _neutralize_markup)}" for notification in notifications
    ]
    text = sentences[0] if len(sentences) == 1 else f"{len(sentences)} GPU cost alerts: " + "; ".join(sentences)
    blocks = [block for notification in notifications for block in _blocks(notification, public_url)]
    return {"text": _CUT_ENTITY.sub("", text[:MAX_FALLBACK_LENGTH]), "mrkdwn": False, "blocks": blocks}


def _blocks(notification: Notification, public_url: str) -> list[dict[str, Any]]:
    """Return at most five blocks: title, subject and figures, top wasters, action and note, link."""
    icon = {"firing": "🔴", "repeat": "🔴", "resolved": "🟢", "digest": "📊"}[notification.event]
    fields = [*subject_fields(notification.subject), *figure_fields(notification)][:MAX_FIELDS]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain_text_object(f"{icon} {headline(notification)}", MAX_HEADER_LENGTH)},
        {
            "type": "section",
            "fields": [_plain_text_object(f"{title}\n{field}", MAX_FIELD_LENGTH) for title, field in fields],
        },
    ]
    lines = top_waster_lines(notification)
    if needs_sentence(notification) and not lines:
        lines = [summary(notification)]
    if lines:
        blocks.append({"type": "section", "text": _plain_text_object("\n".join(lines), MAX_PARAGRAPH_LENGTH)})
    note = f"Note: {single_line(notification.note, 500)}." if notification.note else ""
    if remarks := " ".join(filter(None, (suggested_action(notification), note))):
        blocks.append({"type": "context", "elements": [_plain_text_object(remarks, MAX_PARAGRAPH_LENGTH)]})
    address = report_link(notification, public_url)
    link = "" if address is None else f"<{escape(address)}|Open the report>"
    if 0 < _json_length(link) <= MAX_LINK_LENGTH:
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": link}]})
    return blocks


def escape(text: str) -> str:
    """Replace Slack's three control characters by entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _neutralize_markup(name: str) -> str:
    """Make a name safe for a text that Slack parses: a word joiner after a character prevents links and mentions."""
    return escape("".join(char + _WORD_JOINER if char in _MARKUP_CHARACTERS else char for char in single_line(name)))


def _plain_text_object(text: str, max_length: int) -> dict[str, Any]:
    """Return a text, escaped and shortened, in which Slack reads no markup."""
    return {"type": "plain_text", "text": _escape_and_shorten(text, max_length), "emoji": False}


def _escape_and_shorten(text: str, max_length: int) -> str:
    """Escape a text. Of a longer text, as many characters are kept as fit, whole entities only."""
    escaped = escape(text)
    if _json_length(escaped) <= max_length:
        return escaped
    kept, length = "", len("…")
    for char in map(escape, text):
        length += _json_length(char)
        if length > max_length:
            break
        kept += char
    return kept + "…"


def _json_length(content: Any) -> int:
    """Return how many characters a text, or a part of a message, adds to its JSON."""
    length = len(json.dumps(content, ensure_ascii=False))
    return length - len('""') if isinstance(content, str) else length
