"""A settings document means the same in YAML and JSON, and both refuse ambiguous input."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpucost.core.errors import SettingsError
from gpucost.settings.yaml_documents import _UniqueKeyLoader
from gpucost.settings_document import parse_settings
from gpucost_devstack.template import REPOSITORY

EXAMPLE = REPOSITORY / "cluster" / "settings.yaml"
HEAD = '"clusters": [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9090"}}]'
PRICE = '{"source": "constant", "gpu_hourly_usd": '


def test_yaml_and_json_are_equivalent() -> None:
    text = EXAMPLE.read_text()
    document = yaml.safe_load(text)
    assert parse_settings(json.dumps(document, default=str)) == parse_settings(text)


@pytest.mark.parametrize("price", ["2.1", "0.1", "12", "1e1", "2.123456789012", '"2.10"'])
def test_prices_are_equal_in_yaml_and_json(price: str) -> None:
    as_json = parse_settings(f'{{{HEAD}, "pricing": {PRICE}{price}}}}}')
    as_yaml = parse_settings(f'# a comment, which JSON has not\n{{{HEAD}, "pricing": {PRICE}{price}}}}}')
    assert as_json == as_yaml


def test_characters_outside_the_basic_plane_are_read() -> None:
    unit = '"business_units": [{"name": "\\ud83d\\ude00", "namespaces": ["a"]}]'
    settings = parse_settings(f'{{{HEAD}, "pricing": {PRICE}1}}, {unit}}}')
    assert settings.business_units[0].name == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'{{{HEAD}, {HEAD}, "pricing": {PRICE}1}}}}', "in line 1: key 'clusters' appears twice"),
        (f'{{{HEAD}, "pricing": {PRICE}NaN}}}}', "pricing.gpu_hourly_usd"),
        (f'{{{HEAD}, "pricing": {PRICE}Infinity}}}}', "pricing.gpu_hourly_usd"),
        (f'{{{HEAD}, "pricing": ', "not valid YAML or JSON in line"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("clusters: " + "[" * 50 + "]" * 50, "nested too deeply"),
        ("a: \x07", "special characters are not allowed"),
        ('"text"', "must be a mapping"),
    ],
)
def test_invalid_document_is_refused_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_settings(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_duplicate_keys_are_detected_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    comparisons = 0

    class Key(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return str.__eq__(self, str(other))

        __hash__ = str.__hash__

    class Loader(_UniqueKeyLoader):
        def construct_scalar(self, node: Any) -> Key:
            return Key(super().construct_scalar(node))

    text = "\n".join(f"key-{number}: value" for number in range(2_000))
    assert len(yaml.load(text, Loader=Loader)) == 2_000
    assert comparisons < 20_000
    with pytest.raises(yaml.YAMLError, match="key 'key-7' appears twice"):
        yaml.load(text + "\nkey-7: again", Loader=Loader)


@pytest.mark.parametrize("key", ["[a, b]", "{a: b}"])
def test_key_that_is_not_text_is_refused(key: str) -> None:
    with pytest.raises(SettingsError, match="settings are not valid YAML or JSON in line 1: found unhashable key"):
        parse_settings(f"? {key}\n: 5\nclusters: []\n")


@pytest.mark.parametrize("notation", [json.dumps, lambda document: "# YAML\n" + json.dumps(document)])
@pytest.mark.parametrize(
    "more",
    [
        {"clusters": [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9090"}, "selector": {"a": "\ud800"}}]},
        {"clusters": [{"name": "demo", "prometheus": {"url": "http://127.0.0.1/\ud800"}}]},
        {"business_units": [{"name": "x\ud800", "namespaces": ["a"]}]},
        {"business_units": [{"name": "x", "pod_labels": {"team": "\ud800"}}]},
        {"access": [{"principal": "arn:aws:iam::123456789012:role/x", "roles": ["bu:\ud800"]}]},
        {"\ud800": 1},
    ],
)
def test_incomplete_character_is_refused(more: dict[str, object], notation: Callable[[object], str]) -> None:
    document = {**yaml.safe_load(f"{{{HEAD}}}"), "pricing": {"source": "constant", "gpu_hourly_usd": 12}, **more}
    with pytest.raises(SettingsError) as refused:
        parse_settings(notation(document))
    str(refused.value).encode()


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("clusters", "clusters: 'a' is named twice"),
        ("business_units", "business_units: 'a' is named twice"),
        ("alerts", "rules: 'a' is named twice"),
    ],
)
def test_duplicate_name_is_refused(section: str, says: str) -> None:
    document: dict[str, object] = yaml.safe_load(f"{{{HEAD}, 'pricing': {PRICE}1}}}}")
    cluster = {"name": "a", "prometheus": {"url": "http://127.0.0.1:9090"}}
    document[section] = {
        "clusters": [cluster, cluster],
        "business_units": [{"name": name, "namespaces": ["x"]} for name in ("b", "a", "a")],
        "alerts": {"rules": [{"rule": "digest", "every": "week", "name": "a"}] * 2},
    }[section]
    with pytest.raises(SettingsError, match=says):
        parse_settings(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("clusters:\n\t- name: demo\n", "line 2", "indent with spaces, not with tabs"),
        ("clusters: @demo\n", "line 1", "text that begins with a special character in quotes"),
        ("clusters:\n- name:demo\n  selector: {}\n", "line 3", "put a space after every colon"),
        ("clusters: []\npricing\ncoverage: {}\n", "line 3", "a colon and a space after every key"),
        ("clusters:\n  - name: demo\n   selector: {}\n", "line 3", "by the same number of spaces"),
        ("clusters: []\n---\npricing: {}\n", "line 2: found another document", "remove the line ---"),
        ("", "settings are empty", "Required keys: clusters. Allowed keys: clusters, pricing"),
        ("- name: demo", "settings must be a mapping", "Required keys: clusters. Allowed keys: clusters, pricing"),
    ],
)
def test_unreadable_text_names_the_remedy(text: str, problem: str, hint: str) -> None:
    (fault,) = faults_of(text)
    assert problem in fault, fault
    assert hint in fault, fault


def test_fault_of_a_section_names_its_line() -> None:
    twice = ["- {name: demo, prometheus: {url: 'http://127.0.0.1:9090'}}"] * 2
    assert faults_of("\n".join(["# two", "clusters:", *twice])) == ["clusters: 'demo' is named twice (line 2)"]


def test_value_and_similar_keys_are_named() -> None:
    text = "clusters:\n- {name: demo, prometheus: {url: 'http://127.0.0.1:9090', auth: token}, selecter: {a: b}}\n"
    unknown, auth = faults_of(text)
    assert unknown.endswith("Did you mean selector? (line 2)")
    assert auth == "clusters[0].prometheus.auth: must be 'none', 'sigv4' or 'bearer', but is 'token' (line 2)"


def faults_of(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parse_settings(text)
    return [fault.removeprefix("settings: ") for fault in caught.value.faults]


def test_faults_are_in_terms_of_the_document_and_name_the_line() -> None:
    text = """clusters:
- name: demo
  prometheus: {url: http://127.0.0.1:9090, timeout_seconds: 2.5}
business_units:
- name: 12
  namespaces: vision
- namespaces: [a]
  from: tomorrow
cost_labels: [a, b, c, d, e, f]
coverage: {allocation: 25}
alerts:
  quiet_hours: {from: 19:00, to: "07:00", weekends: 3}
  rules:
  - rule: waste
    waste_usd_per_hour: $3.20
    waste_percent: 9%
    name: ""
  - rule: budget
    monthly_usd: 50,000
    percents: []
  - rule: digest
    evry: week
"""
    assert faults_of(text) == [
        "unknown key 'alerts.rules[2].evry'; allowed there: name, scope, severity, receivers, time_zone, quiet_hours, "
        "repeat_hours, for_hours, keep_firing_hours, rule, every, at. Did you mean every? (line 22)",
        "clusters[0].prometheus.timeout_seconds: must be a whole number (line 3)",
        "coverage.allocation: must be less than or equal to 1, but is 25 (line 10)",
        "business_units[0].name: must be text. Put it in quotes; without them it is the number 12 (line 5)",
        "business_units[0].namespaces: must be a list. Write [vision] (line 6)",
        "business_units[1].name: is required (line 7)",
        "business_units[1].from: must be a UTC day or time like 2026-11-19 or 2026-11-19T10:00:00Z (line 8)",
        "cost_labels: must have at most 5 entries (line 9)",
        "alerts.rules[0].name: must be up to 63 lower-case letters, digits and -, such as team-waste (line 17)",
        "alerts.rules[0].waste_usd_per_hour: must be a number without units, signs or separators, but is '$3.20' "
        "(line 15)",
        "alerts.rules[0].waste_percent: must be a number without units, signs or separators, but is '9%' (line 16)",
        "alerts.rules[1].monthly_usd: must be a number without units, signs or separators, but is '50,000' (line 19)",
        "alerts.rules[1].percents: must not be empty (line 20)",
        "alerts.quiet_hours.from: must be text. Put it in quotes; without them it is the number 1140 (line 12)",
        "alerts.quiet_hours.weekends: must be true or false (line 12)",
    ]


def test_document_in_a_single_line_has_no_line_numbers() -> None:
    assert faults_of(f'{{{HEAD}, "lookback_hours": "x"}}') == [
        "lookback_hours: must be a whole number without units, signs or separators, but is 'x'"
    ]


def test_fault_in_json_that_yaml_cannot_read_has_no_line() -> None:
    text = '{"clusters": [],\n"utilization": {"signal": "\x7f"}}'
    assert all("(line" not in fault for fault in faults_of(text))


@pytest.mark.parametrize("name", ["*-fraud", "%fraud", "@fraud", "`fraud`"])
def test_unquoted_special_character_is_explained(name: str) -> None:
    with pytest.raises(SettingsError, match=r"in line 2: .*; put text that begins with a special character in quotes"):
        parse_settings(f"clusters:\n- name: {name}\n")


@pytest.mark.parametrize(
    ("value", "finding"),
    [
        ("2026-02-30", "'2026-02-30' is not a valid timestamp"),
        ("2026-11-19 10:00:00 +99:00", "'2026-11-19 10:00:00 +99:00' is not a valid timestamp"),
        ("!!timestamp soon", "'soon' is not a valid timestamp"),
        ("!!int many", "'many' is not a valid int"),
        ("9" * 5000, f"'{'9' * 60}' is not a valid int"),
        ("1" + ":59" * 2000, f"'1{':59' * 19}:5' is not a valid int"),
        ("1" + ":9" * 190 + ".5", f"'1{':9' * 29}:' is not a valid float"),
        ("0x" + "f" * 6000, f"'0x{'f' * 58}' is not a valid int"),
    ],
)
def test_value_that_yaml_cannot_convert_is_reported_with_its_line(value: str, finding: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(f"business_units:\n- {{name: a, from: {value}}}\n")
    assert str(caught.value) == (
        f"settings are not valid YAML or JSON in line 2: {finding}; correct it, or put it in quotes if it is text"
    )
