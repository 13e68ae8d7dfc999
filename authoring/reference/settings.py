"""The reference of the settings: every section and key of the models, as the JSON Schema describes them."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from authoring.reference.markdown import code, fence, page, table
from gpucost.features.alerting.rule_kinds import RULES
from gpucost_cli.settings_schema import example_texts, settings_schema

INTRODUCTION = """
The settings are one YAML or JSON document. `gpucost settings push FILE --stack NAME` validates it and puts it in force. Unknown keys, wrong types and values out of range are errors that name the key. The document never contains secrets, only names of secrets in Secrets Manager.

Keys in **bold** are required. A number can have any digits after the decimal point and is never rounded to a binary fraction. A shell pattern can contain `*`, `?` and `[…]`.
"""  # noqa: E501 - one line for each paragraph
EDITORS = """
## Completion and validation in editors

Editors that use the YAML language server, such as VS Code with the extension *YAML* from Red Hat, complete keys, show their descriptions and mark errors. Save the schema of your version next to the settings:

```sh
gpucost settings schema > settings.schema.json
```

Then name it in the first line of the settings:

```yaml
# yaml-language-server: $schema=settings.schema.json
clusters:
  - name: prod-eu
    prometheus: {url: "http://prometheus.monitoring:9090"}
pricing: {source: constant, gpu_hourly_usd: 12}
```

The schema of this version is [settings.schema.json](settings.schema.json). It checks every key, type and range, and times if your editor checks formats. Rules that concern several keys are checked only when the settings are read, for example that `auth: sigv4` requires a region. `gpucost settings check FILE` checks them all without a network, names the key of each fault and, where it can, the line, and notes entries that hardly do what is meant.

Settings have no section for exports, which are parameters of the [template](template.md), and none for quotas, which are Kubernetes' own (`ResourceQuota`): reports show them, and the rule [`external`](../how-to/alerts.md#rules) forwards alerts on them. Business units cannot own nodes: group by `node_pool` instead. `secret` and `secret_headers` are read from AWS Secrets Manager, so they need AWS credentials, also for a command on your machine.
"""  # noqa: E501 - one line for each paragraph
_UNITS = (
    (r"^usd_per_million_tokens$", "USD per million tokens"),
    (r"(^|_)usd_per_hour$", "USD per hour"),
    (r"^gpu_hourly_usd$", "USD per GPU-hour"),
    (r"^node_hourly_usd$", "USD per node-hour"),
    (r"(^|_)usd$", "USD"),
    (r"(^|_)percents?(_|$)", "percent"),
    (r"(^|_)hours$", "hours"),
    (r"(^|_)seconds$", "seconds"),
    (r"(^|_)days$", "days"),
    (r"^(pods|hourly|daily)$", "days"),
    (r"^samples|_samples_", "samples"),
    (r"^gpus$", "GPUs"),
)
"""Units of keys, by patterns of their names. The keys of the section `retention` are days."""

_GUIDES = {
    "pricing": "[pricing.md](../how-to/pricing.md) says which source to choose.",
    "inference": "[inference.md](../explanation/inference.md) says how servers are scraped, and what the figures mean.",
    "alerts": "[alerts.md](../how-to/alerts.md) has rules to copy.",
}
"""Pages to read with a section, by its path."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the document: where its keys are, and their schema."""

    path: str
    """Such as `clusters[].prometheus`; "" for the document."""
    name: str
    schema: Mapping[str, Any]
    hidden_keys: frozenset[str] = frozenset()
    """Keys that a section above describes for all variants."""


def settings_page() -> str:
    """Render the page."""
    schema = settings_schema()
    parts = [INTRODUCTION, EDITORS]
    for section in sections(schema):
        heading = f"## {code(section.path)}" if section.path else "## The document"
        keys = [
            row(key, details, schema, is_required=key in section.schema.get("required", ()))
            for key, details in section.schema["properties"].items()
            if key not in section.hidden_keys
        ]
        guide = _GUIDES.get(section.path, "")
        described = table(("Key", "Type and allowed values", "Unit", "Default", "Meaning"), keys)
        shared = "Entries also have the keys of all entries, above." if section.hidden_keys else ""
        example = _example(section)
        text = " ".join(filter(None, (section.schema.get("description", ""), shared, guide)))
        parts += [heading, text, described, example]
    return page("Settings", "the settings' models", *parts)


def alerts_page(current: str) -> str:
    """Render docs/how-to/alerts.md: the current page, with the table of all kinds of rules."""
    rows = [
        (code(kind.kind), kind.fires_when, kind.subjects, kind.severity_text or kind.default_severity) for kind in RULES
    ]
    kinds = table(("rule", "fires when", "subject", "severity"), rows)
    return re.sub(r"(?<=^## Rules\n\n)(\|.*\n)+", lambda _: kinds + "\n", current, count=1, flags=re.MULTILINE)


def sections(schema: Mapping[str, Any]) -> Iterator[Section]:
    """Yield every section once, each before the sections inside it."""
    seen: set[tuple[str, str]] = set()
    stack = [Section("", "SettingsDocument", schema)]
    while stack:
        section = stack.pop(0)
        yield section
        inner: list[Section] = []
        for key, details in section.schema["properties"].items():
            if details.get("deprecated") or key in section.hidden_keys:
                continue
            path = f"{section.path}.{key}".removeprefix(".") + ("[]" if _is_list(details) else "")
            names = list(_section_names(details))
            models = {name: schema["$defs"][name] for name in names}
            if len(names) > 1:
                shared_keys = _shared_keys(list(models.values()))
                inner += _shared_section(path, schema, list(models.values()), shared_keys)
            for name, model in models.items():
                variant = f"{path} {_variant(model)}".strip() if len(names) > 1 else path
                hidden = frozenset(shared_keys) if len(names) > 1 else frozenset()
                if (path, name) not in seen:
                    inner.append(Section(variant, name, model, hidden))
                    seen.add((path, name))
        stack = inner + stack


def row(key: str, details: Mapping[str, Any], schema: Mapping[str, Any], *, is_required: bool) -> tuple[str, ...]:
    """The cells of a key."""
    name = f"**{code(key)}**" if is_required else code(key)
    return (name, type_text(details, schema), unit(key, details), default_text(details), details["description"])


def unit(key: str, details: Mapping[str, Any]) -> str:
    """The unit of a number, by its key."""
    if not _is_number(details):
        return ""
    return next((text for pattern, text in _UNITS if re.search(pattern, key)), "")


def default_text(details: Mapping[str, Any]) -> str:
    """The default in YAML. Sections and empty lists have none that would help."""
    default = details.get("default")
    if default in (None, {}, []):
        return ""
    flow = yaml.safe_dump(default, default_flow_style=True, width=1000).removesuffix("...\n").strip()
    return code(flow)


def type_text(details: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The type, and what is allowed, in words."""
    if "$ref" in details:
        return "mapping"
    for union in ("anyOf", "oneOf"):
        if union in details:
            texts = [type_text(choice, schema) for choice in details[union] if choice.get("type") != "null"]
            is_decimal = any(choice.get("type") == "number" for choice in details[union])
            return " or ".join(dict.fromkeys(texts[:1] if is_decimal else texts))
    if "const" in details:
        return code(details["const"])
    if "enum" in details:
        return ", ".join(code(choice) for choice in details["enum"])
    kind = details.get("type")
    if kind == "array":
        size = ", not empty" if details.get("minItems") else ""
        size += f", at most {details['maxItems']} entries" if "maxItems" in details else ""
        inner = details["items"]
        if "$ref" in inner or "oneOf" in inner:
            return f"list of mappings{size}"
        return f"list of: {type_text(inner, schema)}{size}"
    if kind == "object":
        patterns = list(details.get("patternProperties", {}).values())
        values = patterns[0] if patterns else details.get("additionalProperties")
        inner_text = type_text(values, schema) if isinstance(values, Mapping) else "text"
        return f"mapping of names to {inner_text}"
    if kind == "string":
        return _text_type(details)
    if kind in ("integer", "number"):
        name = "integer" if kind == "integer" else "number"
        least = details.get("minimum", details.get("exclusiveMinimum"))
        return name + _bounds(least, details.get("maximum"), is_exclusive="exclusiveMinimum" in details)
    return "true or false"


def _text_type(details: Mapping[str, Any]) -> str:
    if message := details.get("patternErrorMessage"):
        return str(message).removeprefix("must be ")
    formats = {"date": "day such as 2026-11-19", "date-time": "UTC time such as 2026-11-19T10:00:00Z"}
    if "format" in details:
        return formats[details["format"]]
    if "pattern" in details:
        return "duration such as 400d, 26w or 5y"
    return "text"


def _bounds(least: float | None, most: float | None, *, is_exclusive: bool) -> str:
    if least is None or most is None:
        return "" if least is None else f", at least {least:g}"
    return f", more than {least:,g}, up to {most:,.0f}" if is_exclusive else f", {least:,.0f} to {most:,.0f}"


def _is_number(details: Mapping[str, Any]) -> bool:
    choices = details.get("anyOf", [details])
    choices = [details["items"], *details["items"].get("anyOf", ())] if details.get("type") == "array" else choices
    return any(choice.get("type") in ("integer", "number") for choice in choices)


def _is_list(details: Mapping[str, Any]) -> bool:
    return any(choice.get("type") == "array" for choice in (details, *details.get("anyOf", ())))


def _section_names(details: Any) -> Iterator[str]:
    """The names of the models that a key holds, also in lists and unions."""
    if "$ref" in details:
        yield details["$ref"].rpartition("/")[2]
    for choice in (*details.get("anyOf", ()), *details.get("oneOf", ())):
        yield from _section_names(choice)
    if isinstance(details.get("items"), Mapping):
        yield from _section_names(details["items"])


def _shared_keys(models: list[Mapping[str, Any]]) -> list[str]:
    first, *others = models
    return [
        key for key, details in first["properties"].items() if all(o["properties"].get(key) == details for o in others)
    ]


def _shared_section(
    path: str, schema: Mapping[str, Any], models: list[Mapping[str, Any]], keys: list[str]
) -> Iterator[Section]:
    """The keys that all entries of a list with several kinds of entries share, as a section."""
    properties = {key: models[0]["properties"][key] for key in keys}
    if properties:
        yield Section(path, "", {"description": "The keys of all entries of this list.", "properties": properties})


def _variant(model: Mapping[str, Any]) -> str:
    tag = next((key for key in ("rule", "type") if "const" in model["properties"].get(key, {})), None)
    return f"({tag}: {model['properties'][tag]['const']})" if tag else ""


def _example(section: Section) -> str:
    """The section's example, as it is written, under the key that holds the section."""
    text = example_texts().get(section.name)
    if text is None:
        return ""
    key = re.sub(r" \([^)]*\)", "", section.path).rpartition(".")[2]
    if key.endswith("[]"):
        text = f"{key.removesuffix('[]')}:\n  - {textwrap.indent(text, '    ').lstrip()}"
    elif key:
        text = f"{key}:\n{textwrap.indent(text, '  ')}"
    return fence("yaml", text)
