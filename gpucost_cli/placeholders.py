"""Refuses values that were copied from an example and not replaced."""

import re
from collections.abc import Iterator

from gpucost.core.errors import InvalidInputError
from gpucost.settings.section import Section

_PLACEHOLDER_ACCOUNTS = ("000000000000", "111122223333", "123456789012", "444455556666", "777788889999")
"""Account IDs of AWS's documentation; the example settings and parameters use them too."""
_PLACEHOLDERS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(rf"(?<![^:])(?:{'|'.join(_PLACEHOLDER_ACCOUNTS)})(?![^:])"),
        "the ID of your AWS account; aws sts get-caller-identity --query Account prints it",
    ),
    (
        re.compile(r"(?<=/workspaces/)(?:ws-0[0-]*|[^/]*[^\w/-][^/]*)(?=/|$)"),
        "the ID of your workspace; aws amp list-workspaces prints it",
    ),
    (re.compile(r"https?://(?:[\w-]+\.)*example\.(?:com|net|org)\b|https?://\S*…\S*"), "your address"),
)
"""Patterns of placeholders, each with a description of the value to put in."""


def refuse_placeholders(document: Section, name: str) -> None:
    """Check a settings document or a parameter file for placeholders of the examples.

    Args:
        document: the parsed document.
        name: name of the document in the message.

    Raises:
        InvalidInputError: a value is a placeholder; the message names the key and the value to put in.
    """
    for fault in placeholder_faults(document, name):
        raise InvalidInputError(fault)


def placeholder_faults(document: Section, name: str) -> Iterator[str]:
    """Yield a sentence for each placeholder of a document; see `refuse_placeholders`."""
    for key, value in _strings(document.model_dump(mode="json", by_alias=True), ()):
        for pattern, replacement in _PLACEHOLDERS:
            if match := pattern.search(value):
                shown = "" if match[0] == value else f" in {value!r}"
                yield f"{name}: {key}: {match[0]!r}{shown} is an example's placeholder. Replace it with {replacement}"
                break  # several patterns can match the same fault


def _strings(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield every text in a document with its key, as `clusters[0].prometheus.url`."""
    if isinstance(value, str):
        yield "".join(path).removeprefix("."), value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner, (*path, f".{key}"))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _strings(inner, (*path, f"[{index}]"))
