"""Section `alerts`: errors name the key, what is wrong and what is allowed, in one sentence."""

import pytest

from gpucost.core.errors import SettingsError
from gpucost.settings_document import parse_settings

HEAD = 'clusters: [{name: a, prometheus: {url: "http://x"}}]\npricing: {source: constant, gpu_hourly_usd: 1}\nalerts: '
WASTE = "rule: waste, waste_usd_per_hour: 5, waste_percent: 10"


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("{rules: [{rule: waste, waste_usd_per_hour: 5}]}", "alerts.rules[0].waste_percent: is required"),
        ("{rules: [{rule: wasted}]}", "alerts.rules[0]: rule must be waste, "),
        (
            "{rules: [{rule: digest}, {rule: waste, waste_usd_per_hour: -5, waste_percent: 1}]}",
            "alerts.rules[1].waste_usd_per_hour: must be greater than 0",
        ),
        ("{rules: [{rule: waste, waste_usd_per_hour: nan, waste_percent: 1}]}", "must be a finite number"),
        ("{rules: [{rule: waste, waste_usd_per_hour: 5, waste_percent: 101}]}", "less than or equal to 100"),
        (f"{{rules: [{{{WASTE}, for_hours: 0}}]}}", "for_hours: must be greater than or equal to 1"),
        (f"{{rules: [{{{WASTE}, severity: fatal}}]}}", "'info', 'warning' or 'critical'"),
        (
            f"{{rules: [{{{WASTE}, scope: {{cluster: [a]}}}}]}}",
            "'alerts.rules[0].scope.cluster'; allowed there: business_units, clusters, namespaces, node_pools",
        ),
        (
            f"{{receivers: [{{type: email}}], rules: [{{{WASTE}, receivers: [sre]}}]}}",
            "unknown receiver 'sre'; allowed: email",
        ),
        (f"{{rules: [{{{WASTE}, name: Team Waste}}]}}", "name: must be up to 63 lower-case letters, digits and -"),
        ("{rules: [{name: a, rule: digest}, {name: a, rule: data}]}", "'a' is named twice"),
        ("{rules: [{rule: digest}, {rule: digest}]}", "2 rules of kind digest: each needs a name"),
        ("{rules: [{rule: budget, monthly_usd: 0}]}", "monthly_usd: must be greater than 0"),
        ("{rules: [{rule: budget, monthly_usd: 1, percents: []}]}", "percents: must not be empty"),
        ("{quiet_hours: {from: '22:00', to: '22:00'}}", "both 22:00: an empty period"),
        (
            "{quiet_hours: {from: '25:00', to: '07:00'}}",
            "quiet_hours.from: must be a time of day from 00:00 to 23:59, for example 22:30",
        ),
        ("{time_zone: Mars/Olympus}", "unknown time_zone 'Mars/Olympus'; use an IANA name, for example Europe/Berlin"),
        (f"{{rules: [{{{WASTE}, time_zone: 'a b'}}]}}", "must be a time zone, for example Europe/Berlin or UTC"),
        ("{repeat_hours: -1}", "repeat_hours: must be greater than or equal to 0"),
        ("{receivers: [{type: pager}]}", "type must be slack, email or alertmanager"),
        ("{receivers: [{type: slack}]}", "alerts.receivers[0].secret: is required"),
        ("{receivers: [{type: alertmanager, url: 'ftp://x'}]}", "an address that begins with http:// or https://"),
    ],
)
def test_invalid_section_is_rejected_with_key_and_reason(section: str, says: str) -> None:
    with pytest.raises(SettingsError) as rejection:
        parse_settings(HEAD + section).check_new_document()
    assert says in str(rejection.value)
    assert "\n" not in str(rejection.value)


def test_secret_value_instead_of_its_name_is_not_repeated() -> None:
    with pytest.raises(SettingsError) as rejection:
        parse_settings(HEAD + '{receivers: [{type: slack, secret: "https://hooks.slack.com/services/T/B/topsecret"}]}')
    assert str(rejection.value) == (
        "settings: alerts.receivers[0].secret: must be the name of a secret that begins with gpucost/, never its value "
        "(line 3)"
    )
