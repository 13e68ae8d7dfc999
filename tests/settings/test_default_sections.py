"""Sections that a document leaves out: their defaults are built without validation, which takes time at every start."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import create_model

from gpucost.settings.section import Section
from gpucost.settings_document import SettingsDocument


def sections_of(annotation: Any) -> Iterator[type[Section]]:
    """The sections in an annotation, and those below them."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
        for field in annotation.model_fields.values():
            yield from sections_of(field.annotation)
    for argument in getattr(annotation, "__args__", ()):
        yield from sections_of(argument)


SECTIONS = sorted(set(sections_of(SettingsDocument)), key=lambda section: section.__name__)
DEFAULTS = [
    pytest.param(field.default, id=f"{section.__name__}.{name}")
    for section in SECTIONS
    for name, field in section.model_fields.items()
    if isinstance(field.default, Section)
]


@pytest.mark.parametrize("default", DEFAULTS)
def test_default_section_equals_its_validated_form(default: Section) -> None:
    section = type(default)
    with_validated_defaults = create_model("Validated", __base__=section)
    with_validated_defaults.model_config["validate_default"] = True
    validated = with_validated_defaults.model_validate({})
    assert default == section.model_validate({})
    assert [*default] == [*validated]
    assert [type(value) for _, value in default] == [type(value) for _, value in validated]


def test_all_default_sections_of_the_document_are_compared() -> None:
    of_document = {f"SettingsDocument.{name}" for name in ("pricing", "utilization", "energy", "inference", "alerts")}
    assert of_document <= {default.id for default in DEFAULTS}
