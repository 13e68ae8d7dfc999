"""The JSON Schema of the settings document, for editors: made at run time from the models that the loader uses."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import DecimalSchema, ModelSchema

from gpucost.settings.section import Section
from gpucost.settings_document import SettingsDocument

EXAMPLES = files(__package__).joinpath("settings_examples.yaml")
"""Examples of the sections without `example`, by the names of their models."""


def settings_schema() -> dict[str, Any]:
    """Return the schema of the whole document, with a description of every key and an example of every section."""
    schema = SettingsDocument.model_json_schema(schema_generator=_SettingsSchema)
    schema["title"], schema["description"] = "gpucost settings", "Clusters, prices, business units, access and alerts."
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


def settings_schema_text() -> str:
    """Return the schema as a JSON file."""
    return json.dumps(settings_schema(), indent=2, ensure_ascii=False) + "\n"


@cache
def section_examples() -> dict[str, Any]:
    """Return the example of every section, by the name of its model. Times are text, as in JSON."""
    return {name: yaml.load(text, Loader=PlainTimesLoader) for name, text in example_texts().items()}


@cache
def example_texts() -> dict[str, str]:
    """Return the YAML of every section's example, by the name of its model."""
    blocks = re.split(r"^(\w+):\n", EXAMPLES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    texts = dict(zip(blocks[::2], blocks[1::2], strict=True))
    texts |= {model.__name__: vars(model)["example"] for model in _subclasses(Section) if "example" in vars(model)}
    return {name: textwrap.dedent(text).lstrip() for name, text in texts.items()}


def _subclasses(model: type[Section]) -> Iterator[type[Section]]:
    for subclass in model.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


class PlainTimesLoader(yaml.SafeLoader):
    """Loads YAML as editors do: times and days stay text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the base class
        first: [resolver for resolver in resolvers if resolver[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a section's fields, by name. Subclasses may replace them.

    A section whose fields derive from a catalog has their descriptions from it.
    """
    descriptions = {name: field.description for name, field in model.model_fields.items() if field.description}
    if descriptions:
        return descriptions
    for ancestor in reversed(model.__mro__):
        if issubclass(ancestor, Section) and ancestor is not Section:
            descriptions |= _docstrings_of_fields(ancestor)
    return descriptions


@cache
def _docstrings_of_fields(model: type[Section]) -> dict[str, str]:
    """Read the docstrings from the source, because pydantic would do so at every cold start of a function."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    docstrings: dict[str, str] = {}
    for index, statement in enumerate(definition.body[1:], start=1):
        before = definition.body[index - 1]
        if not (isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name)):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            docstrings[before.target.id] = inspect.cleandoc(str(statement.value.value))
    return docstrings


_DECIMAL = {
    "type": "string",
    "pattern": r"^[+-]?(\d+\.?\d*|\.\d+)$",
    "patternErrorMessage": "must be a number, such as 4.5",
}
"""A number in quotes. Stated here, because pydantic from 2.14 on gives such text no pattern."""


class _SettingsSchema(GenerateJsonSchema):
    """Adds what pydantic does not know: descriptions and examples; removes what editors do not need."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, BaseModel):
            return dft.model_dump(mode="json", exclude_defaults=True)
        if isinstance(dft, tuple):
            return [self.encode_default(element) for element in dft]
        if isinstance(dft, Decimal):
            return int(dft) if dft == int(dft) else float(dft)
        return super().encode_default(dft)

    def decimal_schema(self, schema: DecimalSchema) -> dict[str, Any]:
        number = super().decimal_schema(schema)["anyOf"][0]
        return {"anyOf": [number, {**_DECIMAL}]}

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        json_schema = super().model_schema(schema)
        model = schema["cls"]
        properties = json_schema["properties"]
        descriptions = field_descriptions(model)
        for name, field in model.model_fields.items():
            key = properties[field.alias or name]
            key["description"] = descriptions[name]
            if key.get("default", ...) is None:
                del key["default"]
        json_schema["examples"] = [section_examples()[model.__name__]]
        return json_schema

    def tagged_union_schema(self, schema: Any) -> JsonSchemaValue:
        union = super().tagged_union_schema(schema)
        union.pop("discriminator", None)  # a keyword of OpenAPI; `const` in each schema says the same
        return union

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        mapping = super().dict_schema(schema)
        if "patternProperties" in mapping:
            mapping.pop("propertyNames", None)
            mapping["additionalProperties"] = False
        return mapping
