"""`gpucost settings check`: everything that is wrong with a settings file, without a network."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpucost.settings_document import parse_settings
from gpucost_cli.settings_notes import units_without_namespace
from tests.gpucost_cli.settings_remedies import REMEDIES, Remedy
from tests.gpucost_command import in_this_process

CLUSTER = 'clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9"}}]\n'


def check(folder: Path, text: str) -> tuple[int | str | None, str, list[str]]:
    path = folder / "settings.yaml"
    path.write_text(text)
    done = in_this_process("settings", "check", str(path))
    return done.returncode, done.stdout.replace(str(folder), ""), done.stderr.replace(f"{folder}/", "").splitlines()


def test_every_fault_is_listed(tmp_path: Path) -> None:
    text = CLUSTER + "busines_units: []\npricing: {split: thirds}\ncost_labels: 3\n"
    status, out, faults = check(tmp_path, text)
    assert (status, out) == (2, "")
    assert len(faults) == 4
    assert faults.pop().startswith("note: time zones and placeholders are checked once the rest is valid")
    for part in ("unknown key 'busines_units'", "pricing.split", "cost_labels"):
        assert [fault.startswith(f"gpucost: settings.yaml: {part}") for fault in faults].count(True) == 1, part


def test_requirements_of_new_settings_are_listed(tmp_path: Path) -> None:
    text = """
clusters: [{name: demo, prometheus: {url: "http://mimir.example.com", secret_headers: {X-Api-Key: gpucost/key}}}]
alerts: {time_zone: Europe/Berlim, rules: [{rule: digest, every: week, at: "08:00", time_zone: Mars/Phobos}]}
"""
    status, out, faults = check(tmp_path, text)
    assert (status, out) == (2, "")
    assert ["Europe/Berlim" in faults[0], "Mars/Phobos" in faults[1], "no TLS" in faults[2]] == [True] * 3, faults


def test_valid_settings_need_no_network(tmp_path: Path) -> None:
    text = CLUSTER + "business_units: [{name: research, namespaces: [bu-a]}]\n"
    assert check(tmp_path, text) == (0, "/settings.yaml is valid. clusters: 1, business units: 1\n", [])


def test_misspelled_business_units_are_noted(tmp_path: Path) -> None:
    text = (
        CLUSTER
        + """
business_units: [{name: research, namespaces: [bu-a]}]
access: [{principal: "arn:aws:iam::210987654321:role/finance", roles: ["bu:reserch", "bu:research"]}]
alerts:
  rules:
    - rule: waste
      waste_usd_per_hour: 20
      waste_percent: 50
      overrides: [{business_unit: "res*", waste_usd_per_hour: 80}, {business_unit: asistant, waste_usd_per_hour: 80}]
"""
    )
    status, out, faults = check(tmp_path, text)
    assert (status, faults) == (0, [])
    notes = [line for line in out.splitlines() if "is no business unit" in line]
    assert [(note.split(": ")[1], note.split("'")[1]) for note in notes] == [
        ("access[0].roles", "reserch"),
        ("alerts.rules[0].overrides[1].business_unit", "asistant"),
    ]


def test_placeholder_is_refused(tmp_path: Path) -> None:
    text = (
        "clusters: [{name: demo, prometheus: {url: 'https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-…', "
        "auth: sigv4, region: us-east-1}}]\n"
    )
    status, _, faults = check(tmp_path, text)
    assert (status, len(faults)) == (2, 1)
    assert "placeholder" in faults[0]
    assert "the ID of your workspace" in faults[0]


def test_placeholders_are_listed_with_the_requirements_of_new_settings(tmp_path: Path) -> None:
    text = """
clusters:
- {name: a, prometheus: {url: "https://prometheus.example.com/api/v1/query"}}
- {name: b, prometheus: {url: "https://metrics.internal/api/v1/"}}
- {name: c, prometheus: {url: "https://kubernetes.internal/api/v1/namespaces/m/services/prometheus:9090/proxy"}}
alerts: {time_zone: Europe/Berlim}
"""
    status, _, faults = check(tmp_path, text)
    assert status == 2
    assert [fault.removeprefix("gpucost: settings.yaml: ")[:40] for fault in faults] == [
        "alerts: unknown time_zone 'Europe/Berlim",
        "clusters[0].prometheus.url: leave out /a",
        "clusters[1].prometheus.url: leave out /a",
        "clusters[0].prometheus.url: 'https://pro",
    ]


NOTED = """
clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9"}}]
business_units:
- {name: everyone, namespaces: ["*"], pod_labels: {team: all}}
- {name: vision, pod_labels: {team: "vis*"}}
pricing:
  source: rates
  rates: [{cluster: prod, gpu_hourly_usd: 3}, {cluster: "d*", gpu_hourly_usd: 2}]
alerts:
  receivers: [{type: slack, secret: gpucost/a}, {type: slack, secret: gpucost/b}, {type: email}]
  rules:
  - {rule: waste, waste_percent: 0.3, waste_usd_per_hour: 2, scope: {clusters: [staging], business_units: [audio]}}
  - rule: idle-workload
    utilization_percent: 5
    overrides: [{cluster: dev, utilization_percent: 0.05}]
"""


def test_ineffective_entries_are_noted(tmp_path: Path) -> None:
    status, out, faults = check(tmp_path, NOTED)
    assert (status, faults) == (0, [])
    notes = [line.removeprefix("note: ") for line in out.splitlines()[1:]]
    assert [note.partition(" ")[0] for note in notes] == [
        "alerts.rules[0].scope.business_units:",
        "business_units[0]",
        "business_units[1].pod_labels.team:",
        "pricing.rates[0].cluster:",
        "alerts.rules[0].scope.clusters:",
        "alerts.rules[1].overrides:",
        "alerts.rules[0].waste_percent:",
        "alerts.rules[1].overrides[0].utilization_percent:",
        "2",
    ]
    assert notes[1].endswith("so these own none: vision. Move everyone to the end")
    assert notes[7].endswith("0.05 means 0.05%. If 5% is meant, write 5")


@pytest.mark.parametrize(
    ("prometheus", "note"),
    [
        (
            "{url: 'https://aps-workspaces.eu-central-1.amazonaws.com/workspaces/ws-1a2b'}",
            "answers only signed queries. Set auth: sigv4 and region: eu-central-1",
        ),
        (
            "{url: 'https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1a2b', auth: sigv4, "
            "region: us-east-1}",
            "refuses the signature. Set region: eu-west-1",
        ),
        ("{url: 'http://prometheus:9090/graph'}", "Write the base URL, probably http://prometheus:9090"),
        ("{url: 'http://prometheus:9090/graph?g0.expr=up'}", "Write the base URL, probably http://prometheus:9090"),
        ("{url: 'http://mimir/prometheus/api/v1/labels'}", "Write the base URL, probably http://mimir/prometheus"),
        ("{url: 'http://mimir/api/v1/label/job/values'}", "Write the base URL, probably http://mimir"),
    ],
)
def test_addresses_that_prometheus_does_not_answer_at_are_noted(tmp_path: Path, prometheus: str, note: str) -> None:
    status, out, faults = check(tmp_path, f"clusters: [{{name: demo, prometheus: {prometheus}}}]\n")
    assert (status, faults) == (0, [])
    (line,) = out.splitlines()[1:]
    assert line.startswith("note: clusters[0].prometheus")
    assert line.endswith(note)


@pytest.mark.parametrize(
    ("section", "note"),
    [
        ("pricing: {source: override}", "pricing: the only source is override, the prices of gpucost prices set."),
        ("pricing: {sources: [override]}", "pricing: the only source is override, the prices of gpucost prices set."),
        (
            "pricing: {sources: [constant, rates, on-demand], gpu_hourly_usd: 3, rates: [{gpu_hourly_usd: 2}]}",
            "pricing.sources: rates, on-demand never apply, because constant comes before",
        ),
        (
            "business_units: [{name: a, namespaces: ['r-*']}, {name: b, namespaces: [r-x, s]}]",
            "business_units[1].namespaces: 'r-x' has no effect: a comes before and owns these pods by 'r-*'",
        ),
        (
            "business_units: [{name: a, namespaces: ['r*']}, {name: b, namespaces: ['r-*', 's*']}]",
            "business_units[1].namespaces: 'r-*' has no effect",
        ),
        (
            "cost_labels: [label_app]",
            "cost_labels: 'label_app' is the name in Prometheus. Write the label's name in Kubernetes, probably app",
        ),
        (
            "business_units: [{name: a, pod_labels: {label_team: x}}]",
            "business_units[0].pod_labels: 'label_team' is the name in Prometheus",
        ),
        ("inference: {weights: {generated: 4}}", "inference: weights has no effect without enabled: true"),
        (
            "pricing: {source: rates, rates: [{percent_of_on_demand: 0.65}]}",
            "pricing.rates[0].percent_of_on_demand: 0.65 means 0.65%. If 65% is meant, write 65",
        ),
        ("pricing: {currency: EUR}", "pricing.currency: AWS's prices are not in EUR, and amounts are never converted"),
        (
            "business_units: [{name: ads, consumers: [ads-*]}]",
            "business_units: the consumers of ads have no effect without inference",
        ),
    ],
)
def test_sections_that_do_less_than_they_seem_to_are_noted(tmp_path: Path, section: str, note: str) -> None:
    _, out, _ = check(tmp_path, CLUSTER + section + "\n")
    (line,) = out.splitlines()[1:]
    assert line.startswith(f"note: {note}")


@pytest.mark.parametrize(
    ("pattern", "note"),
    [
        ("research-.*", "no namespace contains '.'. Write a shell pattern, probably 'research-*'"),
        ("^research$", "no namespace contains '^'. Write a shell pattern, probably 'research'"),
        ("Research", "no namespace contains 'R'. Write a shell pattern, probably 'research'"),
        ("(a|b)-x", "no namespace contains '('. Write a shell pattern, such as team-*"),
    ],
)
def test_patterns_that_match_no_namespace_are_noted(tmp_path: Path, pattern: str, note: str) -> None:
    text = CLUSTER + f"business_units: [{{name: research, namespaces: ['team-[ab]?-*', '{pattern}']}}]\n"
    _, out, _ = check(tmp_path, text)
    (line,) = out.splitlines()[1:]
    assert line == f"note: business_units[0].namespaces: {pattern!r} matches no namespace, because {note}"


@pytest.mark.parametrize(
    "text",
    [
        CLUSTER + "inference: {enabled: false, weights: {generated: 4}}\n",
        CLUSTER + "inference: {enabled: true}\n",
        CLUSTER
        + "inference: {enabled: true, consumer_label: tenant}\n"
        + "business_units: [{name: all, namespaces: ['*']}, {name: ads, consumers: [ads-*]}]\n",
        CLUSTER + "pricing: {sources: [rates, constant], gpu_hourly_usd: 3, rates: [{gpu_hourly_usd: 2}]}\n",
        CLUSTER + "business_units: [{name: a, namespaces: [r-x]}, {name: b, namespaces: ['r-*']}]\n",
        CLUSTER + "business_units: [{name: a, namespaces: ['r-?']}, {name: b, namespaces: ['r-*']}]\n",
        CLUSTER + "business_units: [{name: a, namespaces: ['r-*'], from: 2026-01-01}, {name: b, namespaces: [r-x]}]\n",
        CLUSTER + "pricing: {sources: [override, on-demand]}\n",
        CLUSTER + "pricing: {currency: EUR, rates: [{gpu_hourly_usd: 2}]}\n",
        CLUSTER.replace("127.0.0.1:9", "mimir.internal/prometheus"),
        CLUSTER.replace("127.0.0.1:9", "kubernetes/api/v1/namespaces/m/services/prometheus:9090/proxy"),
        CLUSTER.replace("127.0.0.1:9", "gateway/select/0/prometheus/"),
    ],
)
def test_sections_with_an_effect_have_no_notes(tmp_path: Path, text: str) -> None:
    status, out, _ = check(tmp_path, text)
    assert (status, out.splitlines()[1:]) == (0, [])


def test_unknown_receiver_names_the_line_of_its_rule(tmp_path: Path) -> None:
    text = (
        CLUSTER
        + """
alerts:
  receivers: [{type: slack, secret: gpucost/a}]
  rules:
  - {rule: data}
  - rule: waste
    waste_percent: 30
    waste_usd_per_hour: 2
    receivers: [email]
"""
    )
    status, _, faults = check(tmp_path, text)
    assert status == 2
    assert faults[0] == (
        "gpucost: settings.yaml: alerts.rules[1].receivers: unknown receiver 'email'; allowed: slack (line 10)"
    )
    assert faults[1:] == [
        "note: time zones and placeholders are checked once the rest is valid. Correct it and check again"
    ]


def test_faults_in_alerts_leave_receivers_unchecked(tmp_path: Path) -> None:
    _, _, faults = check(tmp_path, CLUSTER + "alerts: {repeat_hours: -1, rules: [{rule: data, receivers: [email]}]}\n")
    assert faults[1:] == [
        "note: receivers, time zones and placeholders are checked once the rest is valid. Correct it and check again"
    ]


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (
            "pricing: {source: rates, rates: [{gpu_hourly_usd: 4,5}]}",
            "pricing.rates[0]: the key 5 must be text. A comma begins the next key: write numbers without separators "
            "of thousands, and decimal numbers with a point, such as 50000 or 4.5",
        ),
        ("energy: {pue: 0.9}", "energy.pue: must be greater than or equal to 1, but is 0.9"),
        ("energy: {co2e_kg_per_kwh: {eu-west-1: 350}}", "eu-west-1: must be less than or equal to 10, but is 350"),
        ("energy:", "energy: must be a mapping, but is empty. Write its entries, or remove the key"),
        ("business_units:", "business_units: must be a list, but is empty. Write its entries, or remove the key"),
        ("business_units: [{name: a, namespaces: chat}]", "business_units[0].namespaces: must be a list. Write [chat]"),
        ("alerts: {rules: [{rule: budgets}]}", "data, digest or external, but is 'budgets'"),
        (
            "inference: {gateway: {name: envoy}}",
            "required for a gateway that is not built in. Built in are llm-d-router, inference-extension",
        ),
        (
            "business_units: [{name: a, pod_labels: {team: [assistant, chat]}}]",
            "business_units[0].pod_labels: team has a list, but a unit takes one value of a label. Write a unit for "
            "each",
        ),
        (
            "business_units: [{name: a, pod_labels: {team: x}}, {name: a, pod_labels: {team: y}}]",
            "business_units: 'a' is named twice. Write one entry for each name",
        ),
        ("budget: {monthly_usd: 1000}", ". Budgets are rules: alerts: {rules: [{rule: budget, monthly_usd: 50000}]}"),
        (
            "pricing: {override: [{gpu_hourly_usd: 4}]}",
            ". Prices set by hand are rates (pricing.rates), or, for some time, those of gpucost prices set",
        ),
    ],
)
def test_faults_name_the_right_key(tmp_path: Path, section: str, says: str) -> None:
    _, _, faults = check(tmp_path, CLUSTER + section + "\n")
    assert any(says in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("rest", "note"),
    [
        ("{cluster: b}", "clusters: b and c read the same series of http://mimir, so nodes count twice."),
        ("{cluster: b, job: c}", "clusters: b and c read the same series of http://mimir, so nodes count twice."),
        ("{cluster: 'c-.*'}", "clusters[1].selector.cluster: 'c-.*' is compared as it is, and is no pattern."),
        ("{cluster: c}", None),
        ("{job: c}", None),
    ],
)
def test_clusters_that_read_the_same_series_are_noted(tmp_path: Path, rest: str, note: str | None) -> None:
    text = f"""
clusters:
- {{name: b, prometheus: {{url: "http://mimir"}}, selector: {{cluster: b}}}}
- {{name: c, prometheus: {{url: "http://mimir/"}}, selector: {rest}}}
- {{name: d, prometheus: {{url: "http://mimir", headers: {{X-Scope-OrgID: d}}}}}}
"""
    status, out, _ = check(tmp_path, text)
    assert status == 0
    lines = out.splitlines()[1:]
    assert len(lines) == (note is not None)
    assert all(line.startswith(f"note: {note}") for line in lines), lines


@pytest.mark.parametrize(
    ("rule", "note"),
    [
        (
            "{rule: budget, monthly_usd: 9, overrides: [{business_unit: a}]}",
            "overrides[0]: has no effect, because it sets none of monthly_usd, quarterly_usd",
        ),
        ("{rule: budget, monthly_usd: 9, overrides: [{monthly_usd: 8}]}", "overrides[0]: applies to everything"),
        (
            "{rule: budget, monthly_usd: 9, percents: [0.5, 0.8, 1]}",
            "percents: 0.5 means 0.5%. Percentages are numbers such as 80",
        ),
    ],
)
def test_rules_that_do_less_than_they_seem_to_are_noted(tmp_path: Path, rule: str, note: str) -> None:
    units = "business_units: [{name: a, namespaces: [a]}]\n"
    _, out, _ = check(tmp_path, CLUSTER + units + f"alerts: {{receivers: [{{type: email}}], rules: [{rule}]}}\n")
    (line,) = out.splitlines()[1:]
    assert line.startswith(f"note: alerts.rules[0].{note}")


def test_rules_without_receivers_are_noted(tmp_path: Path) -> None:
    _, out, _ = check(tmp_path, CLUSTER + "alerts: {rules: [{rule: digest}]}\n")
    assert "alerts has rules but no receivers" in out


def test_settings_without_oddities_have_no_notes(tmp_path: Path) -> None:
    text = (
        CLUSTER
        + """
business_units:
- {name: vision, namespaces: ["vision-*"], from: 2026-01-01}
- {name: everyone, namespaces: ["*"]}
- {name: everyone, namespaces: ["team-*"], from: 2026-02-01}
alerts:
  receivers: [{type: slack, secret: gpucost/a}, {type: email}]
  rules:
  - {rule: waste, waste_percent: 30, waste_usd_per_hour: 0.5, scope: {clusters: [demo]}}
  - {rule: idle-workload, utilization_percent: 1, overrides: [{cluster: demo, utilization_percent: 0}]}
"""
    )
    assert check(tmp_path, text)[1].splitlines()[1:] == []


def test_unknown_capacity_types_are_noted(tmp_path: Path) -> None:
    text = (
        CLUSTER
        + """
pricing:
  rates:
  - {capacity_type: reserved, gpu_hourly_usd: 2}
  - {capacity_type: ON_DEMAND, gpu_hourly_usd: 3}
  - {capacity_type: "spo*", gpu_hourly_usd: 3}
  - {capacity_type: on demand, gpu_hourly_usd: 4}
"""
    )
    status, out, faults = check(tmp_path, text)
    assert (status, faults) == (0, [])
    notes = [line for line in out.splitlines() if "capacity_type" in line]
    assert [note.partition(":")[2].split()[0] for note in notes] == ["pricing.rates[3].capacity_type:"]


def test_receivers_without_rules_are_noted(tmp_path: Path) -> None:
    status, out, _ = check(tmp_path, CLUSTER + "alerts: {receivers: [{type: email}]}\n")
    assert (status, "alerts has receivers but no rules" in out) == (0, True)


def test_unparsable_documents_print_a_single_message(tmp_path: Path) -> None:
    for text in ("", "clusters:\n\t- name: demo\n"):
        status, out, faults = check(tmp_path, text)
        assert (status, out, len(faults)) == (2, "", 1), faults


def test_units_of_consumers_or_labels_are_not_expected_in_namespaces() -> None:
    units = "[{name: ads, consumers: [ads-*]}, {name: ml, pod_labels: {team: ml}}, {name: ops, namespaces: [ops]}]"
    settings = parse_settings(CLUSTER + f"business_units: {units}\n")
    now = datetime(2026, 11, 26, tzinfo=UTC)
    assert [unit.name for unit in units_without_namespace(settings, {"team"}, now)] == ["ops"]


@pytest.mark.parametrize("remedy", REMEDIES, ids=[remedy.name for remedy in REMEDIES])
def test_document_that_follows_a_message_is_valid(tmp_path: Path, remedy: Remedy) -> None:
    status, _, faults = check(tmp_path, remedy.refused)
    assert status == 2, faults
    assert remedy.message in "\n".join(faults)
    for text in remedy.followed:
        status, _, faults = check(tmp_path, text)
        assert status == 0, (text, faults)
