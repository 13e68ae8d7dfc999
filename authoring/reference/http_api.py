"""The reference of the HTTP API as a page, from the OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any

from authoring.reference.markdown import code, page, table

INTRODUCTION = """
[api.md](api.md) explains periods, filters, paging and errors, with an example of every route. The same description for tools is [openapi.json](openapi.json); a deployment serves it at `/openapi.json`, and as an interactive page at `/docs`.

Errors have the media type `application/problem+json` ([Problem](#problem)).
"""  # noqa: E501 - one line for each paragraph


def http_api_page(document: Mapping[str, Any]) -> str:
    """Render the page from an OpenAPI document."""
    schemas = document["components"]["schemas"]
    parts = [document["info"]["description"], INTRODUCTION]
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            parts += [f"## {code(f'{method.upper()} {path}')}", *_operation(operation, schemas)]
    parts += ["## Response fields", "These are the objects in the responses, by name."]
    for name, schema in sorted(schemas.items()):
        rows = [
            (code(field), type_text(details, schemas), details.get("description", ""))
            for field, details in schema.get("properties", {}).items()
        ]
        parts += [f"## {name}", schema.get("description", ""), table(("Field", "Type", "Meaning"), rows)]
    return page("HTTP API", "openapi.json", *parts)


def _operation(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    yield operation["summary"] + "."
    if description := operation.get("description"):
        yield description
    rows = [_parameter(parameter, schemas) for parameter in operation.get("parameters", ())]
    yield table(("Parameter", "In", "Type", "Default", "Meaning", "Example"), rows)
    for status, response in operation["responses"].items():
        if status == "200":
            kinds = [
                f"{code(media)}{_named_type(content.get('schema', {}), schemas)}"
                for media, content in response.get("content", {}).items()
            ]
            yield f"Response: {', '.join(kinds)}"
    errors = [status for status in operation["responses"] if status != "200"]
    yield f"Errors: {', '.join(sorted(errors))}"


def _named_type(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    return f", {type_text(schema, schemas)}" if "$ref" in schema else ""


def _parameter(parameter: Mapping[str, Any], schemas: Mapping[str, Any]) -> tuple[str, ...]:
    schema = parameter["schema"]
    name = code(parameter["name"])
    default = schema.get("default")
    examples = schema.get("examples", ())
    return (
        f"**{name}**" if parameter.get("required") else name,
        parameter["in"],
        type_text(schema, schemas),
        "" if default in (None, "") else code(str(default)),
        parameter.get("description", ""),
        code(str(examples[0])) if examples else "",
    )


def type_text(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """A JSON Schema's type in words, with links to the schemas on the page."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(type_text(choice, schemas) for choice in choices))
    if "enum" in schema:
        return ", ".join(code(str(choice)) for choice in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]))
    if schema.get("type") == "array":
        return f"list of {type_text(schema.get('items', {}), schemas)}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {type_text(schema['additionalProperties'], schemas)}"
    kind = schema.get("type", "any")
    bounds = [
        f"{word} {schema[key]:,}" for word, key in (("at least", "minimum"), ("at most", "maximum")) if key in schema
    ]
    return f"{kind}, {', '.join(bounds)}" if bounds else kind
