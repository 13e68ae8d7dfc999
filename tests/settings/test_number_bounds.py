"""No number of the settings has more digits than can be computed with."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any, get_args, get_origin

import pytest
from pydantic import TypeAdapter, ValidationError

import gpucost.settings_document  # noqa: F401 - defines every section
from gpucost.core.errors import SettingsError
from gpucost.settings.section import Section
from gpucost.settings_document import parse_settings

HEAD = "clusters: [{name: demo, prometheus: {url: 'http://127.0.0.1:9090'}}]\n"


def sections(section: type[Section] = Section) -> Iterator[type[Section]]:
    for derived in section.__subclasses__():
        yield derived
        yield from sections(derived)


def numbers_in(annotation: Any, metadata: Sequence[Any] = ()) -> Iterator[Any]:
    """The types of numbers inside a type, with what validates them."""
    if annotation is Decimal:
        yield Annotated[Decimal, *metadata] if metadata else Decimal
    elif get_origin(annotation) is Annotated:
        yield from numbers_in(annotation.__origin__, annotation.__metadata__)
    else:
        for argument in get_args(annotation):
            yield from numbers_in(argument)


def numbers() -> list[Any]:
    return [
        pytest.param(number, id=f"{section.__name__}.{name}")
        for section in sections()
        for name, field in section.model_fields.items()
        for number in numbers_in(field.annotation, field.metadata)
    ]


def test_settings_have_numbers() -> None:
    assert len(numbers()) > 30


@pytest.mark.parametrize("number", numbers())
def test_every_number_has_bounds(number: Any) -> None:
    with pytest.raises(ValidationError, match=r"too many digits|greater than"):
        TypeAdapter[Any](number).validate_python("1E-999999999")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("pricing: {source: constant, gpu_hourly_usd: '1E-999999999'}", "pricing.gpu_hourly_usd"),
        ("pricing: {source: constant, gpu_hourly_usd: 1, split: {gpu: 1, vcpu: '1E-999999999', gib: 1}}", "vcpu"),
        ("instance_types: [{name: x1.large, gpus: '0.0E-999999999'}]", "gpus"),
        ("inference: {enabled: true, token_weights: {prompt: '0E-999999999'}}", "prompt"),
    ],
)
def test_number_of_a_billion_digits_is_refused(text: str, where: str) -> None:
    with pytest.raises(SettingsError, match=where):
        parse_settings(HEAD + text)
