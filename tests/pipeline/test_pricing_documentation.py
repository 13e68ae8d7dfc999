"""The examples in docs/how-to/pricing.md are valid."""

import re
from fractions import Fraction
from typing import Any

import pytest
import yaml

from gpucost.core.pricing.prices import NODE_ATTRIBUTES, PRICE_SOURCES, SPLIT_POLICIES, InstanceShape
from gpucost.pipeline.pricing import pricing_of
from gpucost.settings_document import SettingsDocument, parse_settings
from gpucost_devstack.template import REPOSITORY

TEXT = (REPOSITORY / "docs" / "how-to" / "pricing.md").read_text()
EXAMPLES = [yaml.safe_load(example) for example in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
CLUSTERS = [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9090"}}]


@pytest.mark.parametrize("example", EXAMPLES)
def test_settings_shown_are_valid(example: dict[str, Any]) -> None:
    is_section = not example.keys() <= SettingsDocument.model_fields.keys()
    sections = {"pricing": {"source": "on-demand", **example}} if is_section else example
    pricing = pricing_of(parse_settings(yaml.safe_dump({"clusters": CLUSTERS, **sections})))
    assert set(pricing.sources) <= set(PRICE_SOURCES)


SHAPES = {
    "p5.48xlarge": InstanceShape("p5.48xlarge", 8, 192, 2048 * 1024),
    "p4d.24xlarge": InstanceShape("p4d.24xlarge", 8, 96, 1152 * 1024),
    "g5.xlarge": InstanceShape("g5.xlarge", 1, 4, 16 * 1024),
}


def test_documented_split_policies_match_the_code() -> None:
    header, *rows = re.findall(r"^\| `(?:split|gpu-bears-all|scad|opencost|datadog)` \|.*\$.*$", TEXT, re.MULTILINE)
    nodes = re.findall(r"([a-z0-9.]+), \$([0-9.]+)", header)
    assert [name for name, _ in nodes] == [*SHAPES]
    assert len(rows) == len(SPLIT_POLICIES)
    for row in rows:
        (policy,) = re.findall(r"`(.*?)`", row)
        shown = re.findall(r"([0-9.]+)% · \$([0-9.]+)", row)
        for (name, usd), (percent, per_gpu) in zip(nodes, shown, strict=True):
            part = SPLIT_POLICIES[policy].gpu_part_of(SHAPES[name])
            assert part is not None
            assert (f"{float(100 * part):.1f}", f"{float(part * Fraction(usd) / SHAPES[name].gpus):.4f}") == (
                percent,
                per_gpu,
            )


def test_documentation_has_examples_and_names_every_fact() -> None:
    assert len(EXAMPLES) >= 3
    assert f"({', '.join(f'`{fact}`' for fact in NODE_ATTRIBUTES)})" in TEXT
