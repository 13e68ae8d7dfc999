"""Rules on the cost of a million tokens, on the real ledger with prepared hours and tokens."""

from decimal import Decimal

import pytest

from gpucost.core.errors import SettingsError
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.features.alerting.notification_text import figure_fields, report_link, summary
from gpucost.settings_document import parse_settings
from gpucost.storage.sqlite_table import SqliteTable
from tests.features.alerting.fleet import Fleet, pod, settings_with_rules

CHAT = pod("research", "chat", use="0.5")
"""One GPU at $12 for the hour, of which half is used."""
RULE = "rule: token-cost, usd_per_million_tokens: 4, window_hours: 2"
INFERENCE = "inference: {enabled: true}\n"


def served(
    prompt: int | None = 0,
    generated: int | None = 0,
    *,
    pod: str = "chat",
    model: str = "llama",
    unit: str = "research",
) -> ServedTokens:
    return ServedTokens(f"{unit}-ns", f"{pod}-0", "vllm", model, prompt, generated, 0, 1)


def fleet_with(sqlite_table: SqliteTable, *rules: str) -> Fleet:
    return Fleet(sqlite_table, settings_with_rules(*rules) + INFERENCE)


def test_window_sums_costs_and_tokens(sqlite_table: SqliteTable) -> None:
    fleet = fleet_with(sqlite_table, RULE)
    # By hand: $12 ÷ 4 million = $3.
    assert fleet.publish_and_close(0, CHAT, served=[served(3_000_000, 1_000_000)]) == []
    # $24 ÷ 6 million = $4, which is not more than the budget.
    assert fleet.publish_and_close(1, CHAT, served=[served(1_500_000, 500_000)]) == []
    # $24 ÷ 5 million = $4.80. At full use half of that.
    fleet.publish(2, CHAT, served=[served(2_000_000, 1_000_000)])
    fleet.close_hour(2)
    (notification,) = fleet.email.notifications
    assert fleet.email.take() == ["firing token-cost research llama"]
    assert notification.figures == {
        "usd_per_million_tokens": Decimal("4.8"),
        "usd_per_million_tokens_at_full_use": Decimal("2.4"),
        "prompt_tokens": 3_500_000,
        "generated_tokens": 1_500_000,
        "allocated_usd": 24,
        "budget_usd_per_million_tokens": 4,
    }
    assert notification.threshold == "more than $4 per million tokens in 2 hours"
    assert (
        summary(notification)
        == "research in cluster demo pays $4.8000 per million tokens of llama; its budget is $4.0000"
    )
    assert ("At full use", "$2.4000") in figure_fields(notification)
    link = report_link(notification, "https://costs.example.com") or ""
    assert link.startswith("https://costs.example.com/#/model/llama?start=")
    assert "f.business_unit=research&cluster=demo" in link
    # $24 ÷ 9 million is within the budget again.
    fleet.publish(3, CHAT, served=[served(5_000_000, 1_000_000)])
    fleet.close_hour(3)
    (resolved,) = fleet.email.notifications
    assert summary(resolved) == (
        "research in cluster demo is within its budget of $4.0000 again: $2.6667 per million tokens of llama"
    )


@pytest.mark.parametrize(
    ("tokens", "budget", "expected"),
    [
        # By weights 1 and 5: $12 ÷ (1,000,000 + 5 × 200,000) = $6 per million prompt tokens, $30 generated ones.
        ("prompt", "5.99", ["firing token-cost research llama"]),
        ("prompt", "6", []),
        ("generated", "29.99", ["firing token-cost research llama"]),
        ("generated", "30", []),
        # $12 ÷ 1.2 million = $10
        ("blended", "9.99", ["firing token-cost research llama"]),
        ("blended", "10", []),
    ],
)
def test_budget_is_for_blended_prompt_or_generated_tokens(
    sqlite_table: SqliteTable, tokens: str, budget: str, expected: list[str]
) -> None:
    fleet = fleet_with(sqlite_table, f"rule: token-cost, usd_per_million_tokens: {budget}, tokens: {tokens}")
    assert fleet.publish_and_close(0, CHAT, served=[served(1_000_000, 200_000)]) == expected


def test_model_that_was_not_called_is_not_infinitely_expensive(sqlite_table: SqliteTable) -> None:
    fleet = fleet_with(sqlite_table, RULE.replace("window_hours: 2", "window_hours: 1"))
    assert fleet.publish_and_close(0, CHAT, served=[served(0, 0)]) == []
    assert fleet.publish_and_close(1, CHAT, served=[served(100, 20)]) == ["firing token-cost research llama"]
    fleet.publish(2, CHAT, served=[served(0, 0)])
    fleet.close_hour(2)
    (resolved,) = fleet.email.notifications
    assert (resolved.event, resolved.note) == ("resolved", "no tokens")
    assert summary(resolved) == "research in cluster demo used no tokens of llama"


def test_model_without_generated_tokens_is_within_a_budget_for_them(sqlite_table: SqliteTable) -> None:
    """A model for embeddings generates nothing. Its prompts cost money, which no budget for generated tokens limits."""
    fleet = fleet_with(sqlite_table, "rule: token-cost, usd_per_million_tokens: 29, tokens: generated, window_hours: 1")
    assert fleet.publish_and_close(0, CHAT, served=[served(1_000_000, 200_000)]) == ["firing token-cost research llama"]
    fleet.publish(1, CHAT, served=[served(1_000_000, 0)])
    fleet.close_hour(1)
    (resolved,) = fleet.email.notifications
    assert summary(resolved) == "research in cluster demo used no generated tokens of llama"


def test_unknown_tokens_leave_the_alert_as_it_is(sqlite_table: SqliteTable) -> None:
    fleet = fleet_with(sqlite_table, RULE.replace("window_hours: 2", "window_hours: 1"))
    unknown = [ServedTokens("research-ns", "chat-0", "vllm", "")]
    assert fleet.publish_and_close(0, CHAT, served=unknown) == []
    assert fleet.publish_and_close(1, CHAT, served=[served(100, 20)]) == ["firing token-cost research llama"]
    assert fleet.publish_and_close(2, CHAT, served=unknown) == []
    assert fleet.publish_and_close(3, CHAT) == ["resolved token-cost research llama"]  # the server is gone


def test_unknown_price_leaves_the_alert_as_it_is(sqlite_table: SqliteTable) -> None:
    fleet = fleet_with(sqlite_table, RULE)
    unpriced = CHAT._replace(
        allocated_usd=None, effective_usd=None, waste_usd=None, unmeasured_usd=None, gpu_hourly_usd=None
    )
    assert fleet.publish_and_close(0, unpriced, served=[served(100, 20)]) == []
    # $12 ÷ 2 million is a lower bound of $6, and $12 ÷ 4 million one of $3.
    assert fleet.publish_and_close(1, CHAT, served=[served(2_000_000)]) == ["firing token-cost research llama"]
    assert fleet.publish_and_close(2, unpriced, served=[served(2_000_000)]) == []
    assert fleet.publish_and_close(3, CHAT, served=[served(4_000_000)]) == []
    assert fleet.publish_and_close(4, CHAT, served=[served(4_000_000)]) == ["resolved token-cost research llama"]


def test_price_that_is_not_there_yet_may_be_low(sqlite_table: SqliteTable) -> None:
    fleet = fleet_with(sqlite_table, RULE)
    unpriced = CHAT._replace(
        allocated_usd=None, effective_usd=None, waste_usd=None, unmeasured_usd=None, gpu_hourly_usd=None
    )
    assert fleet.publish_and_close(0, unpriced, served=[served(4_000_000)]) == []
    # $12 ÷ 2 million is above the budget, but the other 4 million tokens may have been cheap: at least $2.
    assert fleet.publish_and_close(1, CHAT, served=[served(2_000_000)]) == []


def test_models_scopes_and_overrides(sqlite_table: SqliteTable) -> None:
    fleet = fleet_with(
        sqlite_table,
        RULE + ", models: [llama*, mistral], scope: {business_units: [research, search]}, "
        "overrides: [{model: '*-70b', usd_per_million_tokens: 100}, {business_unit: search, for_hours: 2}]",
    )
    pods = {
        ("research", "llama"),
        ("research", "llama-70b"),
        ("research", "gemma"),
        ("search", "mistral"),
        ("outside", "llama"),
    }
    lines = [pod(unit, name) for unit, name in sorted(pods)]
    # $12 ÷ 1.2 million = $10 each
    tokens = [served(1_000_000, 200_000, pod=name, model=name, unit=unit) for unit, name in pods]
    assert fleet.publish_and_close(0, *lines, served=tokens) == ["firing token-cost research llama"]
    assert fleet.publish_and_close(1, *lines, served=tokens) == ["firing token-cost search mistral"]


def test_models_of_a_unit_have_separate_alerts(sqlite_table: SqliteTable) -> None:
    fleet = fleet_with(sqlite_table, RULE)
    tokens = [served(1_000, 10, model="a"), served(1_000, 10, model="b")]
    assert fleet.publish_and_close(0, CHAT, served=tokens) == [
        "firing token-cost research a",
        "firing token-cost research b",
    ]


def test_hours_in_another_currency_are_not_added(sqlite_table: SqliteTable) -> None:
    fleet = fleet_with(sqlite_table, RULE)
    assert fleet.publish_and_close(0, CHAT, served=[served(100, 20)], currency="EUR") == []
    # Without the hour in EUR, $12 ÷ 4 million = $3.
    assert fleet.publish_and_close(1, CHAT, served=[served(3_000_000, 1_000_000)]) == []


def test_rule_requires_that_tokens_are_counted() -> None:
    settings = parse_settings(settings_with_rules(RULE))
    with pytest.raises(SettingsError, match=r"token-cost requires inference: \{enabled: true\}"):
        settings.check_new_document()
    parse_settings(settings_with_rules(RULE) + INFERENCE).check_new_document()
