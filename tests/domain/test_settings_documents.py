"""A settings document means the same as YAML and as JSON, and both refuse what money must not be read from."""

import json
from pathlib import Path

import pytest
import yaml

from gpucost.errors import SettingsError
from gpucost.settings import parse_settings

KIT = Path(__file__).parents[2] / "cluster" / "settings.yaml"
HEAD = '"clusters": [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9090"}}]'
PRICE = '{"source": "constant", "gpu_hourly_usd": '


def test_one_document_in_both_notations() -> None:
    text = KIT.read_text()
    document = yaml.safe_load(text)
    assert parse_settings(json.dumps(document, default=str)) == parse_settings(text)


@pytest.mark.parametrize("price", ["2.1", "0.1", "12", "1e1", "2.123456789012", '"2.10"'])
def test_a_price_is_the_same_number_in_both(price: str) -> None:
    as_json = parse_settings(f'{{{HEAD}, "pricing": {PRICE}{price}}}}}')
    as_yaml = parse_settings(f'# a comment, which JSON has not\n{{{HEAD}, "pricing": {PRICE}{price}}}}}')
    assert as_json == as_yaml


def test_letters_beyond_the_basic_plane_are_whole() -> None:
    unit = '"business_units": [{"name": "\\ud83d\\ude00", "namespaces": ["a"]}]'
    found = parse_settings(f'{{{HEAD}, "pricing": {PRICE}1}}, {unit}}}')
    assert found.business_units[0].name == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'{{{HEAD}, {HEAD}, "pricing": {PRICE}1}}}}', "in line 1: key 'clusters' stands twice"),
        (f'{{{HEAD}, "pricing": {PRICE}NaN}}}}', "pricing.gpu_hourly_usd"),
        (f'{{{HEAD}, "pricing": {PRICE}Infinity}}}}', "pricing.gpu_hourly_usd"),
        (f'{{{HEAD}, "pricing": ', "not valid YAML or JSON in line"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("a: \x07", "special characters are not allowed"),
        ('"text"', "must be a mapping"),
    ],
)
def test_what_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_settings(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
