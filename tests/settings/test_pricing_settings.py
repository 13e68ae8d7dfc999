"""Section `pricing`: the errors of invalid settings."""

import pytest

from gpucost.core.errors import SettingsError
from gpucost.settings_document import parse_settings

HEAD = 'clusters: [{name: a, prometheus: {url: "http://x"}}]\npricing: '
CONSTANT = "source: constant, gpu_hourly_usd: 1"
BLOCK = "reservation_id: cr-0a, instance_type: p5.48xlarge, instances: 2, fee_usd: 100"


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("{source: constant, sources: [constant], gpu_hourly_usd: 1}", "source and sources exclude each other"),
        ("{source: auto, sources: [spot]}", "source and sources exclude each other"),
        ("{sources: [auto]}", "pricing.sources"),
        ("{gpu_hourly_usd: 12}", "gpu_hourly_usd requires source constant, which is not in sources. Add constant"),
        ("{sources: [spot, spot]}", "pricing.sources: contains spot twice; name each source once"),
        ("{source: constant}", "gpu_hourly_usd is required with source constant"),
        ("{source: spot, gpu_hourly_usd: 1}", "gpu_hourly_usd requires source constant, which is not in sources"),
        ("{source: rates, rates: [{instance_type: p5*}]}", "exactly one of gpu_hourly_usd, node_hourly_usd"),
        ("{source: rates, rates: [{gpu_hourly_usd: 1, from: '2026-11-01T10:00:00'}]}", "must have a time zone"),
        (
            "{source: rates, rates: [{gpu_hourly_usd: 1, from: '2026-11-01T10:00:00', until: 2026-12-01}]}",
            "must have a time zone",
        ),
        ("{source: rates, rates: [{gpu_hourly_usd: 1, from: 20261101}]}", "20261101 is neither a UTC time like"),
        (
            "{source: rates, rates: [{gpu_hourly_usd: 1, from: 2026-12-01, until: 2026-11-01}]}",
            "until must be after from",
        ),
        ("{source: rates, rates: [{gpu_hourly_usd: 1, since: 2026-11-01}]}", "zone, from, until, gpu_hourly_usd"),
        ("{source: rates, rates: [{percent_of_on_demand: 0}]}", "greater than 0"),
        (f"{{{CONSTANT}, split: fair}}", "pricing.split: must be gpu-bears-all, scad, opencost"),
        (f"{{{CONSTANT}, split: {{gpu: 9, vcpu: 1}}}}", "pricing.split.gib: is required"),
        (f"{{{CONSTANT}, split: {{gpu: 0, vcpu: 1, gib: 1}}}}", "pricing.split.gpu: must be greater"),
        (
            f"{{{CONSTANT}, split: {{gpu: 9, cpu: 1, gib: 1}}}}",
            "unknown key 'pricing.split.cpu'; allowed there: gpu, vcpu, gib",
        ),
        (f"{{{CONSTANT}, on_demand: {{p7.48xlarge: 2}}}}", "unknown key 'pricing.on_demand.p7.48xlarge'"),
        (
            f"{{source: capacity-block, capacity_blocks: [{{{BLOCK}, from: 2026-11-01, until: 2026-11-01}}]}}",
            "until must be after from",
        ),
        (
            f"{{source: capacity-block, capacity_blocks: [{{{BLOCK}, from: 2026-11-01, until: 2026-11-03}}, "
            f"{{{BLOCK}, from: 2026-11-02, until: 2026-11-04}}]}}",
            "cr-0a appears twice for the same time",
        ),
    ],
)
def test_invalid_settings_are_refused(section: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_settings(HEAD + section)
    assert says in str(refused.value)


def test_extended_capacity_block_has_two_entries() -> None:
    first, then = (
        f"{{{BLOCK}, from: 2026-11-01, until: 2026-11-03}}",
        f"{{{BLOCK}, from: 2026-11-03, until: 2026-11-04}}",
    )
    pricing = parse_settings(HEAD + f"{{source: capacity-block, capacity_blocks: [{then}, {first}]}}").pricing
    assert len(pricing.capacity_blocks) == 2


def test_capacity_types_match_in_any_spelling() -> None:
    text = HEAD + "{source: rates, rates: [{gpu_hourly_usd: 1, capacity_type: CAPACITY_BLOCK}]}"
    assert parse_settings(text).pricing.rates[0].attribute_patterns() == {"capacity_type": "capacity-block"}


@pytest.mark.parametrize(
    ("section", "order"),
    [
        ("{}", "override spot on-demand list-price"),
        ("{source: auto}", "override spot on-demand list-price"),
        ("{rates: [{gpu_hourly_usd: 1}]}", "override rates spot on-demand list-price"),
        (
            f"{{capacity_blocks: [{{{BLOCK}, from: 2026-11-01, until: 2026-11-03}}]}}",
            "override capacity-block spot on-demand list-price",
        ),
        (
            f"{{capacity_blocks: [{{{BLOCK}, from: 2026-11-01, until: 2026-11-03}}], cur: {{database: b, table: b}}}}",
            "override capacity-block cur spot on-demand list-price",
        ),
        ("{source: list-price}", "override list-price"),
    ],
)
def test_automatic_sources_are_those_with_settings_and_those_of_aws(section: str, order: str) -> None:
    assert parse_settings(HEAD + section).pricing.ordered_sources == tuple(order.split())


def test_settings_without_pricing_use_automatic_sources() -> None:
    assert parse_settings(HEAD.removesuffix("pricing: ")).pricing.is_automatic
