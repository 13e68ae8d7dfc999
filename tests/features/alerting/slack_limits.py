"""Validates messages against Slack's documented limits (docs.slack.dev, reference of blocks)."""

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
ALLOWED_KEYS = {
    "header": {"type", "text", "block_id"},
    "section": {"type", "text", "fields", "accessory", "block_id", "expand"},
    "context": {"type", "elements", "block_id"},
    "divider": {"type", "block_id"},
}


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
