"""Reads YAML and JSON documents into their models, with error messages in terms of the document."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError

from gpucost.core.errors import SettingsError, did_you_mean
from gpucost.settings.section import MAX_SHOWN_CHARACTERS, Section

Document = TypeVar("Document", bound=Section)


class ReadDocument(NamedTuple, Generic[Document]):
    """A valid document: its text, what this contains, and the model of that."""

    text: str
    content: Any
    settings: Document


def read_document(text: str, model: type[Document]) -> ReadDocument[Document]:
    """Parse and validate a settings document, in YAML or JSON, and return it with its text.

    Raises:
        SettingsError: as `parse_document`.
    """
    content = load_document(text, "settings")
    return ReadDocument(text, content, validate_document(content, model, text, "settings"))


def parse_document(text: str, model: type[Document]) -> Document:
    """Parse and validate a settings document, in YAML or JSON.

    Raises:
        SettingsError: the document is invalid. Each fault names the key and its line, and says what is allowed.
    """
    return read_document(text, model).settings


def load_document(text: str, name: str) -> Any:
    """Parse YAML or JSON without validating it.

    Raises:
        SettingsError: the text is neither.
    """
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicate_keys)  # a hundred times faster than YAML
    except ValueError:
        # Invalid JSON, also with duplicate keys, is parsed as YAML, whose errors name the line.
        from gpucost.settings.yaml_documents import load_yaml  # cold starts rarely need it

        return load_yaml(text, name)
    except RecursionError as error:
        raise SettingsError(f"{name} are nested too deeply") from error


def validate_document(document: Any, model: type[Document], text: str, name: str) -> Document:
    """Validate a parsed document.

    Args:
        document: the parsed document.
        model: the model with the allowed sections.
        text: the document's text, in which lines are looked up.
        name: plural noun for the document in messages.

    Raises:
        SettingsError: the document is invalid. Each fault names the key and its line, and says what is allowed.
    """
    if not isinstance(document, dict):
        problem = "are empty" if document is None else "must be a mapping"
        required = [field.alias or key for key, field in model.model_fields.items() if field.is_required()]
        needed = f"Required keys: {', '.join(required)}. " if required else ""
        raise SettingsError(f"{name} {problem}. {needed}Allowed keys: {', '.join(_keys_of(model))}")
    try:
        parsed = model.model_validate(document)
        parsed.model_dump_json()
    except ValidationError as error:
        raise SettingsError(*(f"{name}: {message}" for message in _error_messages(error, model, text))) from error
    except PydanticSerializationError as error:
        raise SettingsError(
            rf"{name} contain an incomplete character (a lone surrogate such as \ud800); write the whole character"
        ) from error
    return parsed


def yaml_to_json(document: ReadDocument[Document]) -> str | None:
    """Convert a YAML settings document to JSON; None if it is JSON already or cannot be written as JSON."""
    try:
        json.loads(document.text)
    except ValueError:
        try:
            return json.dumps(document.content, default=_iso, ensure_ascii=False, separators=(",", ":"))
        except (TypeError, ValueError):
            return None
    return None


def _iso(value: object) -> str:
    if isinstance(value, date):  # or a datetime, which is one
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {max(keys, key=keys.count)!r} appears twice")
    return mapping


def _unquoted(entry: object) -> str:
    """Describe an unquoted entry that is not text to YAML and JSON."""
    if isinstance(entry, bool):
        return str(entry).lower()
    return f"the number {entry}" if isinstance(entry, int | float | Decimal) else f"the date {entry}"


def _text_message(finding: ErrorDetails) -> str:
    entry = finding["input"]
    if isinstance(entry, int | float | Decimal | date):
        return f"must be text. Put it in quotes; without them it is {_unquoted(entry)}"
    return "must be text"


def _number_message(finding: ErrorDetails, kind: str = "a number") -> str:
    entry = finding["input"]
    if not isinstance(entry, str):
        return f"must be {kind}"
    return f"must be {kind} without units, signs or separators, but is {entry[:MAX_SHOWN_CHARACTERS]!r}"


def _whole_number_message(finding: ErrorDetails) -> str:
    return _number_message(finding, "a whole number")


def _list_message(finding: ErrorDetails) -> str:
    entry = finding["input"]
    if isinstance(entry, str) and entry.isprintable() and not re.search(r"[\[\]{},]", entry):
        return f"must be a list. Write [{entry[:MAX_SHOWN_CHARACTERS]}]"
    return _section_message(finding, "a list")


def _section_message(finding: ErrorDetails, kind: str = "a mapping") -> str:
    entry = finding["input"]
    if entry is None:
        return f"must be {kind}, but is empty. Write its entries, or remove the key"
    wrong = f", but is {entry[:MAX_SHOWN_CHARACTERS]!r}" if isinstance(entry, str) else ""
    example = _EXAMPLES.get(str(finding["loc"][-1]) if finding["loc"] else "")
    return f"must be {kind}{wrong}" + (f". Write for example {example}" if example else "")


def _range_message(finding: ErrorDetails) -> str:
    limit = finding["msg"].replace("Input should be", "must be")
    return f"{limit}, but is {str(finding['input'])[:MAX_SHOWN_CHARACTERS]}"


def _length_message(finding: ErrorDetails) -> str:
    limits, unit = finding["ctx"], "characters" if finding["type"].startswith("string") else "entries"
    if "max_length" in limits:
        return f"must have at most {limits['max_length']} {unit}"
    least = limits["min_length"]
    return "must not be empty" if least == 1 else f"must have at least {least} {unit}"


_EXAMPLES = {
    "clusters": 'clusters: [{name: prod, prometheus: {url: "http://prometheus:9090"}}]',
    "prometheus": 'prometheus: {url: "http://prometheus:9090"}',
    "selector": "selector: {cluster: prod}",
    "pricing": "pricing: {source: constant, gpu_hourly_usd: 12}",
    "rates": "rates: [{instance_type: p5.48xlarge, node_hourly_usd: 55.04}]",
    "business_units": 'business_units: [{name: research, namespaces: ["research-*"]}]',
    "utilization": "utilization: {sources: [pod, shared]}",
    "cost_labels": "cost_labels: [team]",
    "alerts": "alerts: {receivers: [], rules: []}",
}
"""A line of YAML for sections that are often written in another form, by key."""
_TIME_MESSAGE = "must be a UTC day or time like 2026-11-19 or 2026-11-19T10:00:00Z"

_MESSAGES_BY_ERROR_TYPE: Mapping[str, str | Callable[[ErrorDetails], str]] = {
    "missing": "is required",
    "tuple_type": _list_message,
    "dict_type": _section_message,
    "model_type": _section_message,
    "model_attributes_type": _section_message,
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "datetime_type": _TIME_MESSAGE,
    "datetime_parsing": _TIME_MESSAGE,
    "datetime_from_date_parsing": _TIME_MESSAGE,
    "datetime_object_invalid": _TIME_MESSAGE,
    "string_type": _text_message,
    "decimal_type": _number_message,
    "decimal_parsing": _number_message,
    "int_type": _whole_number_message,
    "int_parsing": _whole_number_message,
    "int_from_float": _whole_number_message,
    "greater_than": _range_message,
    "greater_than_equal": _range_message,
    "less_than": _range_message,
    "less_than_equal": _range_message,
    "too_short": _length_message,
    "too_long": _length_message,
    "string_too_short": _length_message,
    "string_too_long": _length_message,
}
"""Messages in terms of the document, for errors that pydantic describes in terms of Python."""


def _error_messages(error: ValidationError, model: type[Section], text: str) -> Iterator[str]:
    """Yield a message for each error. Misspelled keys come first, because they often cause a second error."""
    from gpucost.settings.yaml_documents import DocumentLines  # it finds lines in JSON, too

    errors = sorted(error.errors(include_url=False), key=lambda details: details["type"] != "extra_forbidden")
    sections = {details["loc"][:depth] for details in errors for depth in range(len(details["loc"]))}
    errors = [details for details in errors if details["type"] != "too_short" or details["loc"] not in sections]
    lines = DocumentLines(text)
    messages: dict[str, int | None] = {}
    for details in errors:
        path = [part for index, part in enumerate(details["loc"]) if not _is_tag(details["loc"], index, model)]
        message = _error_message(details, path, model)
        messages.setdefault(message, lines.line_of([*path, *_keys_below(_key(path), message)]))
    for message, line in messages.items():
        yield message if line is None else f"{message} (line {line})"


def _key(path: list[int | str]) -> str:
    """Write a path as in messages: `alerts.rules[0].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _keys_below(where: str, message: str) -> list[int | str]:
    """The keys below a section that a message begins with, because its rule concerns several keys."""
    named = re.match(r"[a-z][\w.\[\]]*(?=: )", message)
    if named is None or not named[0].startswith(where):
        return []
    return [int(part) if part.isdigit() else part for part in re.findall(r"\w+", named[0].removeprefix(where))]


def _error_message(finding: ErrorDetails, path: list[int | str], model: type[Section]) -> str:
    where = _key(path)
    if finding["type"] == "extra_forbidden":
        section = _section_at(finding["loc"][:-1], model)
        allowed = _keys_of(section)
        similar = did_you_mean(str(path[-1]), allowed)
        meant = f". {similar}" if similar else ""
        if ":" in str(path[-1]):
            meant = ". Put a space after the colon"
        if path[-1] in section.misplaced_keys:
            meant = f". {section.misplaced_keys[path[-1]]}"
        return f"unknown key {where!r}; allowed there: {', '.join(allowed)}{meant}"
    if finding["type"] == "literal_error" and path == ["pricing", "split"]:
        expected = finding["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
        return f"{where}: must be {expected}, or a mapping with gpu, vcpu and gib"
    if finding["type"] == "invalid_key":
        return (
            f"{_key(path[:-1])}: the key {path[-1]} must be text. A comma begins the next key: write numbers without "
            "separators of thousands, and decimal numbers with a point, such as 50000 or 4.5"
        )
    if finding["type"].startswith("union_tag"):
        key, tags = next(tagged for name, tagged in model.tagged_lists.items() if name in path)
        *first_tags, last_tag = tags
        verb = "must be" if finding["type"] == "union_tag_invalid" else "is required:"
        wrong = finding["ctx"].get("tag")
        value = "" if wrong is None else f", but is {wrong[:MAX_SHOWN_CHARACTERS]!r}"
        return f"{where}: {key} {verb} {', '.join(first_tags)} or {last_tag}{value}"
    message = _MESSAGES_BY_ERROR_TYPE.get(finding["type"])
    if message is None:
        message = finding["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    elif not isinstance(message, str):
        message = message(finding)
    if isinstance(finding["input"], str) and (straight := straighten_quotes(finding["input"])) != finding["input"]:
        return (
            f"{where}: {message.partition(', but is ')[0]}, but is {finding['input'][:MAX_SHOWN_CHARACTERS]!r}, with "
            f"typographic quotes. Write {straight[:MAX_SHOWN_CHARACTERS]!r}"
        )
    if finding["type"] == "literal_error" and isinstance(finding["input"], str):
        message += f", but is {finding['input'][:MAX_SHOWN_CHARACTERS]!r}"
    if not where:
        return message
    return f"{where}.{message}" if _keys_below("", message) else f"{where}: {message}"


def straighten_quotes(text: str) -> str:
    """Remove the typographic quotes that word processors and chats put around a text."""
    return text.strip("“”„‟‘’‚‛«»‹›")


def _is_tag(path: tuple[int | str, ...], index: int, model: type[Section]) -> bool:
    """Whether a part of an error's path is pydantic's tag for one of several models, and not a key of the document."""
    part = path[index]
    if part in {"[key]", "policy", "custom"}:
        return True
    after_index = index > 0 and isinstance(path[index - 1], int)
    return after_index and any(part in tags for _, tags in model.tagged_lists.values())


def _section_at(path: tuple[int | str, ...], model: type[Section]) -> Any:
    """The model of the section at a path."""
    sections: list[Any] = [model]
    for index, part in enumerate(path):
        if isinstance(part, int) or part in {"[key]", "policy", "custom"}:
            continue
        if _is_tag(path, index, model):
            sections = [section for section in sections if part in _discriminator_values(section)]
        else:
            sections = _sections_of(sections[0].model_fields[part].annotation)
    return sections[0]


def _keys_of(section: Any) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


def _discriminator_values(section: Any) -> tuple[Any, ...]:
    """The values of `rule` or `type` that select a model from a union."""
    return tuple(
        value
        for name in ("rule", "type")
        if name in section.model_fields
        for value in getattr(section.model_fields[name].annotation, "__args__", ())
    )


def _sections_of(annotation: Any) -> list[Any]:
    """The models inside `X | None`, `tuple[X, ...]`, `Annotated[X, …]` or a union of several."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for argument in getattr(annotation, "__args__", ()) for section in _sections_of(argument)]
