"""What docs/pricing.md shows is what the product takes."""

import re
from typing import Any

import pytest
import yaml

from gpucost.domain.prices import FACTS, PRICE_SOURCES
from gpucost.services.pricing import pricing_of
from gpucost.settings import parse_settings
from local.template import REPOSITORY

TEXT = (REPOSITORY / "docs" / "pricing.md").read_text()
EXAMPLES = [yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
CLUSTERS = [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9090"}}]


@pytest.mark.parametrize("example", EXAMPLES)
def test_settings_shown_are_valid(example: dict[str, Any]) -> None:
    section = example.get("pricing") or {"source": "on-demand", **example}
    document = yaml.safe_dump({"clusters": CLUSTERS, "pricing": section})
    pricing = pricing_of(parse_settings(document))
    assert set(pricing.order) <= set(PRICE_SOURCES)


def test_there_are_examples_and_every_fact_is_named() -> None:
    assert len(EXAMPLES) >= 3
    assert f"({', '.join(f'`{fact}`' for fact in FACTS)})" in TEXT
