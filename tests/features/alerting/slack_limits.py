"""Validates messages against what Slack documents (docs.slack.dev: reference of blocks, formatting message text)."""

import json
import re
from collections.abc import Iterator
from typing import Any

BLOCKS, HEADER, SECTION_TEXT, FIELDS, FIELD, ELEMENTS, CONTEXT_TEXT, FALLBACK = (
    50,
    150,
    3000,
    10,
    2000,
    10,
    3000,
    40_000,
)
BLOCKS_AS_JSON = 12_000
"""Slack documents no limit of all blocks together. Its staff says 12,000 characters of text and a buffer for the blocks
around them (https://github.com/slackapi/bolt-js/issues/2509). Of messages whose JSON was measured, those of at most
15,561 characters were accepted, and those from 13,297 characters in one block, or 17,694 in 45 blocks, were refused
(https://github.com/slackapi/bolt-js/issues/2867)."""
ALLOWED_KEYS = {
    "header": {"type", "text", "block_id"},
    "section": {"type", "text", "fields", "accessory", "block_id", "expand"},
    "context": {"type", "elements", "block_id"},
    "divider": {"type", "block_id"},
}


_CONTROL_SEQUENCE = re.compile(r"<([^>]*)>?")
"""A mention (<!channel>, <@U1>, <#C1>) or link (<https://…|label>): only < begins one, and only > ends it."""
_FORMATS = (
    re.compile(r"(?<!\w)\*[^*\n]+\*(?!\w)"),
    re.compile(r"(?<!\w)_[^_\n]+_(?!\w)"),
    re.compile(r"(?<!\w)~[^~\n]+~(?!\w)"),
    re.compile(r"`[^`\n]+`"),
    re.compile(r"^(?:>|&gt;)", re.MULTILINE),
)
"""Bold, italic, struck, code, quote: in text of mrkdwn."""
_PARSED = (
    re.compile(r":[a-z0-9_+-]+:"),
    re.compile(r"(?:https?|mailto|tel):\w*/*\w"),
    re.compile(r"@(?:channel|here|everyone)"),
)
"""Emoji, links and mentions that Slack finds without <> in text of messages."""


def control_sequences(body: dict[str, Any]) -> list[str]:
    """List what Slack reads as mentions and links. It is looked for in all texts, of whatever type."""
    return [sequence for text in _all_texts(body) for sequence in _CONTROL_SEQUENCE.findall(text["text"])]


def markup(body: dict[str, Any]) -> list[str]:
    """List what Slack formats, or makes a link or mention of, outside of control sequences. Not in plain text."""
    matches = []
    for text in _all_texts(body):
        if text["type"] != "plain_text":
            formats = _FORMATS if text.get("mrkdwn", True) else ()
            plain = _CONTROL_SEQUENCE.sub("", text["text"])
            matches += [match.group() for pattern in (*formats, *_PARSED) for match in pattern.finditer(plain)]
    return matches


def _all_texts(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The texts. A message's own text is formatted unless its `mrkdwn` is false (chat.postMessage, Formatting)."""
    yield {"type": "message", "text": body["text"], "mrkdwn": body.get("mrkdwn", True)}
    for block in body["blocks"]:
        yield from (*block.get("fields", []), *block.get("elements", []), *filter(None, [block.get("text")]))


def limit_violations(body: dict[str, Any]) -> list[str]:
    """List what Slack would reject or show differently."""
    return list(_problems(body))


def _problems(body: dict[str, Any]) -> Iterator[str]:
    if not body.get("text"):
        yield "no fallback text"
    elif len(body["text"]) > FALLBACK:
        yield "fallback text too long"
    blocks = body.get("blocks", [])
    if not 1 <= len(blocks) <= BLOCKS:
        yield f"{len(blocks)} blocks"
    length = len(json.dumps(blocks, ensure_ascii=False))
    if length > BLOCKS_AS_JSON:
        yield f"blocks of {length} characters"
    for block in blocks:
        kind = block.get("type")
        if kind not in ALLOWED_KEYS or not block.keys() <= ALLOWED_KEYS[kind]:
            yield f"an unknown block or key: {kind} {sorted(block)}"
        elif kind == "header":
            yield from _text(block.get("text"), HEADER, {"plain_text"})
        elif kind == "section":
            yield from _section(block)
        elif kind == "context":
            elements = block.get("elements", [])
            if not 1 <= len(elements) <= ELEMENTS:
                yield f"{len(elements)} elements"
            for element in elements:
                yield from _text(element, CONTEXT_TEXT, {"plain_text", "mrkdwn"})


def _section(block: dict[str, Any]) -> Iterator[str]:
    if "text" not in block and not block.get("fields"):
        yield "a section without text or fields"
    if "text" in block:
        yield from _text(block["text"], SECTION_TEXT, {"plain_text", "mrkdwn"})
    if len(block.get("fields", [])) > FIELDS:
        yield "too many fields"
    for field in block.get("fields", []):
        yield from _text(field, FIELD, {"plain_text", "mrkdwn"})


def _text(text: Any, max_length: int, kinds: set[str]) -> Iterator[str]:
    if not isinstance(text, dict) or text.get("type") not in kinds:
        yield f"no text object of kind {sorted(kinds)}"
        return
    if not 1 <= len(text.get("text", "")) <= max_length:
        yield f"a text of {len(text.get('text', ''))} characters where {max_length} are allowed"
    if text["type"] == "mrkdwn" and "emoji" in text:
        yield "emoji goes with plain_text only"
