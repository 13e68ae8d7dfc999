"""`/docs` and the OpenAPI document behind it."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from gpucost.api.html_pages import documentation_page
from gpucost_devstack.template import REPOSITORY
from tests.functions.api_requests import request_as

DOCUMENT: dict[str, Any] = json.loads((REPOSITORY / "docs" / "reference" / "openapi.json").read_text())
PARAMETERS = [
    (path, parameter)
    for path, methods in DOCUMENT["paths"].items()
    for operation in methods.values()
    for parameter in operation.get("parameters", [])
]
OF_TIME = {"start", "end", "window", "step", "granularity", "from", "to", "since", "until"}
UNITS = re.compile(r"UTC|hours?\b|days?\b|weeks?|USD|GPU-hours|seconds|rows?\b|workloads|percent|ratio", re.I)
VOID = {"meta", "br", "link", "img", "input"}


class Page(HTMLParser):
    """A strict HTML parser: every opened element must be closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.style = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.text += data


def test_docs_page_shows_every_route_parameter_and_schema() -> None:
    answer = request_as(None, "/docs")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    shown = Page(answer.body)
    words = " ".join(shown.text.split())
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            assert f"{method.upper()} {path}" in words
            assert operation["summary"] in words
    for _, parameter in PARAMETERS:
        assert parameter["name"] in words
        assert " ".join(parameter["description"].split()) in words
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert name in words
        assert all(field in words for field in schema.get("properties", {}))


def test_docs_page_needs_no_scripts_and_no_other_host() -> None:
    answer = request_as(None, "/docs")
    shown = Page(answer.body)
    anchors = {attributes["id"] for _, attributes in shown.elements if "id" in attributes}
    for tag, attributes in shown.elements:
        assert tag not in {"script", "iframe", "object", "embed", "link", "img", "form", "base"}
        assert not any(name.startswith("on") or name in {"src", "style"} for name in attributes)
        if tag == "a":
            target = str(attributes["href"])
            assert target == "openapi.json" or (target.startswith("#") and target[1:] in anchors)
    digest = base64.b64encode(hashlib.sha256(shown.style.encode()).digest()).decode()
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_docs_page_escapes_texts_of_the_document() -> None:
    nasty = '"><script>alert(1)</script>&'
    document = json.loads(json.dumps(DOCUMENT))
    document["info"]["title"] = document["info"]["description"] = nasty
    operation = document["paths"]["/v1/costs"]["get"]
    operation["summary"] = operation["description"] = operation["x-required-role"] = nasty
    operation["parameters"][0] |= {"description": nasty, "name": nasty}
    operation["parameters"][0]["schema"] = {"type": nasty, "examples": [nasty], "default": nasty}
    operation["responses"]["200"]["description"] = nasty
    document["components"]["schemas"][nasty] = {
        "description": nasty,
        "properties": {nasty: {"enum": [nasty], "description": nasty}},
    }
    shown = Page(documentation_page(document))
    assert shown.text.count("<script>alert(1)</script>") >= 12
    assert "script" not in {tag for tag, _ in shown.elements}


@pytest.mark.parametrize(
    ("path", "parameter"), PARAMETERS, ids=[f"{path} {parameter['name']}" for path, parameter in PARAMETERS]
)
def test_every_parameter_has_description_and_example(path: str, parameter: dict[str, Any]) -> None:
    schema = parameter["schema"]
    choices = [schema, *schema.get("anyOf", [])]
    assert len(parameter["description"]) > 10, path
    assert schema.get("examples") or any("enum" in each or "const" in each for each in choices), path
    kinds = {each.get("type") for each in choices}
    if parameter["name"] in OF_TIME or kinds & {"integer", "number"}:
        assert UNITS.search(parameter["description"]), path


def test_names_work_in_generated_clients() -> None:
    """Schemas with the same name would get module prefixes, which generators cannot handle."""
    assert not [name for name in DOCUMENT["components"]["schemas"] if not re.fullmatch(r"[A-Za-z0-9]+", name)]
    operations = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(set(operations)) == len(operations)
