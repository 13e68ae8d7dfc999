"""The settings' reference and JSON Schema describe what the loader accepts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import DecimalSchema

from authoring.reference.settings import sections, settings_page, unit
from gpucost.core.errors import SettingsError
from gpucost.settings.section import Section
from gpucost.settings_document import SettingsDocument, parse_settings
from gpucost_cli.settings_commands import settings as settings_commands
from gpucost_cli.settings_schema import (
    PlainTimesLoader,
    example_texts,
    field_descriptions,
    section_examples,
    settings_schema,
    settings_schema_text,
)
from gpucost_devstack.template import REPOSITORY

SCHEMA = settings_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
PAGE = settings_page()
MINIMAL = """
clusters: [{name: prod-eu, prometheus: {url: "http://127.0.0.1:9090"}}]
pricing: {source: constant, gpu_hourly_usd: 1}
"""
_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```|<<'?YAML'?\n(.*?)^YAML$", re.DOTALL | re.MULTILINE)


def models_in_use() -> dict[str, type[Section]]:
    """The models of all sections, by name; those of the schema, without the tests' own models."""
    models: dict[str, type[Section]] = {}
    stack: list[type[Section]] = [Section]
    while stack:
        model = stack.pop()
        stack += model.__subclasses__()
        if model.__module__.startswith("gpucost.") and model.__name__ in SCHEMA["$defs"]:
            models[model.__name__] = model
    return {**models, "SettingsDocument": SettingsDocument}


def errors_of_schema(text: str) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(yaml.load(text, Loader=PlainTimesLoader))]


def documents() -> Iterator[tuple[str, str]]:
    """Every settings document in the repository, also parts, completed with a price and the clusters that they name.

    Pages about clusters also show parameters of manifests, with which tests/documentation renders manifests. The
    sections of settings.md are checked below.
    """
    yield "cluster/settings.yaml", (REPOSITORY / "cluster" / "settings.yaml").read_text()
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    for path in pages:
        for index, match in enumerate(_BLOCK.finditer(path.read_text())):
            text = match[1] or match[2]
            content = yaml.safe_load(text)
            if not set(content) <= set(SettingsDocument.model_fields):
                if path.parent.name == "clusters" or path.name == "settings.md":
                    continue
                # A part of a section, or a key with a typing error, which must not leave the block unchecked
                text = "pricing:\n  source: constant\n  gpu_hourly_usd: 1\n" * text.startswith(" ") + text
                content = yaml.safe_load(text)
            names = re.findall(r"(?:cluster|unused_commitments_to): ([a-z-]+)", text) or ["prod-eu"]
            prometheus = {"url": "http://127.0.0.1:9090"}
            rest = {
                "clusters": [{"name": name, "prometheus": dict(prometheus)} for name in dict.fromkeys(names)],
                "pricing": {"source": "constant", "gpu_hourly_usd": 1},
            }
            missing = {key: part for key, part in rest.items() if key not in content}
            completed = text + yaml.safe_dump(missing) if missing else text
            yield f"{path.relative_to(REPOSITORY)}#{index}", completed


DOCUMENTS = dict(documents())


def test_every_page_with_settings_is_checked() -> None:
    pages = {name.partition("#")[0] for name in DOCUMENTS}
    assert pages >= {
        "README.md",
        "docs/reference/settings.md",
        "docs/how-to/pricing.md",
        "docs/how-to/deploy.md",
        "docs/how-to/alerts.md",
        "docs/how-to/bill.md",
        "docs/how-to/access.md",
    }


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documented_settings_are_valid_for_loader_and_schema(name: str) -> None:
    text = DOCUMENTS[name].replace("{url: …}", '{url: "http://127.0.0.1:9090"}')
    parse_settings(text)
    assert errors_of_schema(text) == []


@pytest.mark.parametrize(
    "change",
    [
        "retention: {pods: 400d, hourly: 5y, daily: 1830}",
        "business_units: [{name: a, namespaces: [x], from: 2026-11-19}]",
        "business_units: [{name: a, namespaces: [x], from: 2026-11-19T10:00:00Z}]",
        "alerts: {rules: [{rule: budget, monthly_usd: '1000.50', percents: [50, 100]}]}",
        "alerts: {quiet_hours: {from: '19:00', to: '07:00'}}",
        "cost_labels: [team, stage]",
        "access: [{principal: 'arn:aws:iam::123456789012:role/finance', roles: [admin, 'bu:research']}]",
    ],
)
def test_shorthand_is_valid_for_loader_and_schema(change: str) -> None:
    parse_settings(MINIMAL + change)
    assert errors_of_schema(MINIMAL + change) == []


@pytest.mark.parametrize(
    "text",
    [
        "pricing: {source: constant, gpu_hourly_usd: 1}",
        "clusters: []\npricing: {source: constant, gpu_hourly_usd: 1}",
        MINIMAL + "unknown: 1",
        MINIMAL + "lookback_hours: 0",
        MINIMAL + "lookback_hours: soon",
        MINIMAL + "coverage: {allocation: 1.5}",
        MINIMAL + "utilization: {sources: [gpu]}",
        MINIMAL + "utilization: {signal: DCGM_FI_DEV_SM_CLOCK}",
        MINIMAL + "retention: {pods: 1d5y}",
        MINIMAL + "retention: {pods: 10}",
        MINIMAL + "cost_labels: [a, b, c, d, e, f]",
        MINIMAL + "access: null",
        MINIMAL + "access: [{principal: finance, roles: [viewer]}]",
        MINIMAL + "business_units: [{namespaces: [a]}]",
        MINIMAL + "business_units: [{name: a, namespaces: [a], since: 2026-11-19}]",
        MINIMAL + "business_units: [{name: a, namespaces: [a], distribute: all}]",
        MINIMAL + "alerts: {rules: [{rule: wasted, waste_percent: 1}]}",
        MINIMAL + "alerts: {rules: [{rule: waste, waste_percent: 1}]}",
        MINIMAL + "alerts: {rules: [{rule: data, usd: 1}]}",
        MINIMAL + "alerts: {receivers: [{type: slack, secret: 'https://hooks.slack.com/x'}]}",
        MINIMAL + "alerts: {quiet_hours: {from: '25:00', to: '07:00'}}",
        MINIMAL.replace("prod-eu", "'-demo'"),
        MINIMAL.replace("http://", "ftp://"),
        MINIMAL.replace("gpu_hourly_usd: 1", "gpu_hourly_usd: 0"),
        MINIMAL.replace("source: constant", "source: list"),
        MINIMAL.replace("name: prod-eu,", "name: prod-eu, selector: {a-b: c},"),
        MINIMAL.replace("name: prod-eu,", "name: prod-eu, sources: {karpenter: {}},"),
        MINIMAL.replace("name: prod-eu,", "name: prod-eu, slices_per_gpu: 100,"),
    ],
)
def test_wrong_settings_are_refused_by_loader_and_schema(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_settings(text)
    assert errors_of_schema(text)


@pytest.mark.parametrize("name", sorted(models_in_use()))
def test_every_key_has_a_description(name: str) -> None:
    model = models_in_use()[name]
    lacking = [key for key in model.model_fields if not field_descriptions(model).get(key)]
    assert lacking == [], "write a docstring below the field: a sentence that says what it means, with its unit"


@pytest.mark.parametrize("name", sorted(models_in_use()))
def test_example_of_section_is_valid_and_not_empty(name: str) -> None:
    assert section_examples()[name]
    models_in_use()[name].model_validate(section_examples()[name])


def test_every_example_belongs_to_a_section() -> None:
    assert set(section_examples()) == set(models_in_use()) == set(example_texts())


def test_every_key_of_every_section_is_on_the_page() -> None:
    tables = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    for section in sections(SCHEMA):
        heading = f"`{section.path}`" if section.path else "The document"
        texts = [text for text in tables if text.startswith(heading + "\n")]
        assert texts, heading
        for key in set(section.schema["properties"]) - section.hidden_keys:
            assert any(re.search(rf"^\| \**`{key}`\** \|", text, re.MULTILINE) for text in texts), (heading, key)


def test_page_has_every_section_of_the_schema() -> None:
    assert {section.name for section in sections(SCHEMA)} - {""} == set(models_in_use())


def test_page_shows_bounds_defaults_and_units() -> None:
    assert re.search(r"^\| `timeout_seconds` \| integer, 1 to 300 \| seconds \| `60` \|", PAGE, re.MULTILINE)
    assert re.search(r"^\| \*\*`monthly_usd`\*\* \| number, more than 0, up to .*? \| USD \| – \|", PAGE, re.MULTILINE)
    assert re.search(r"^\| `pods` \| integer, 35 to 3,660 or duration .*? \| days \| `400` \|", PAGE, re.MULTILINE)


def test_amounts_and_durations_have_a_unit() -> None:
    for definition in SCHEMA["$defs"].values():
        for key, details in definition["properties"].items():
            if re.search(r"usd|percent|_hours$|_days$|_seconds$", key) and key != "quiet_hours":
                assert unit(key, details), key


def test_command_prints_the_schema_of_the_installed_version() -> None:
    printed = CliRunner().invoke(settings_commands, ["schema"])
    assert printed.exit_code == 0
    assert printed.output == settings_schema_text()
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_schema_does_not_depend_on_the_version_of_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    original = GenerateJsonSchema.decimal_schema

    def decimal_schema_of_2_14(self: GenerateJsonSchema, schema: DecimalSchema) -> dict[str, Any]:
        number, _ = original(self, schema)["anyOf"]
        return {"anyOf": [number, {"type": "string"}]}

    printed = settings_schema_text()
    monkeypatch.setattr(GenerateJsonSchema, "decimal_schema", decimal_schema_of_2_14)
    assert settings_schema_text() == printed


@pytest.mark.parametrize("price", ['"abc"', '"4,5"', '"."', '""'])
def test_schema_refuses_text_that_is_no_number(price: str) -> None:
    document = MINIMAL.replace("gpu_hourly_usd: 1", f"gpu_hourly_usd: {price}")
    assert errors_of_schema(document)
    with pytest.raises(SettingsError):
        parse_settings(document)


@pytest.mark.parametrize("price", ['"4.5"', '"4."', '".5"', '"+4"'])
def test_schema_accepts_numbers_in_quotes(price: str) -> None:
    document = MINIMAL.replace("gpu_hourly_usd: 1", f"gpu_hourly_usd: {price}")
    assert errors_of_schema(document) == []
    parse_settings(document)


def test_schema_has_no_reference_to_a_missing_definition() -> None:
    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            yield from [node["$ref"]] if "$ref" in node else []
            node = list(node.values())
        if isinstance(node, list):
            for child in node:
                yield from references(child)

    assert {reference.rpartition("/")[2] for reference in references(SCHEMA)} == set(SCHEMA["$defs"])


def test_committed_schema_equals_printed_schema() -> None:
    assert Path(REPOSITORY, "docs", "reference", "settings.schema.json").read_text() == settings_schema_text()
