"""`gpucost settings check`: everything that is wrong with a settings file, without a network."""

from pathlib import Path

from tests.system.test_cli import in_this_process

CLUSTER = 'clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9"}}]\n'


def check(folder: Path, text: str) -> tuple[int | str | None, str, list[str]]:
    path = folder / "settings.yaml"
    path.write_text(text)
    done = in_this_process("settings", "check", str(path))
    return done.returncode, done.stdout.replace(str(folder), ""), done.stderr.splitlines()


def test_every_fault_is_listed(tmp_path: Path) -> None:
    text = CLUSTER + "busines_units: []\npricing: {split: thirds}\ncost_labels: 3\n"
    status, out, faults = check(tmp_path, text)
    assert (status, out) == (2, "")
    assert len(faults) == 3
    for part in ("unknown key 'busines_units'", "pricing.split", "cost_labels"):
        assert [fault.startswith(f"gpucost: settings: {part}") for fault in faults].count(True) == 1, part


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
    assert [line.split("'")[1] for line in out.splitlines()[1:]] == ["reserch", "asistant"]


def test_placeholder_is_refused(tmp_path: Path) -> None:
    text = (
        "clusters: [{name: demo, prometheus: {url: 'https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-…', "
        "auth: sigv4, region: us-east-1}}]\n"
    )
    status, _, faults = check(tmp_path, text)
    assert status == 2
    assert "placeholder" in faults[0]
