"""The README is short: what gpucost does, what it needs, and one command for one's own clusters."""

import re
from typing import Any

import yaml

from gpucost_devstack.template import REPOSITORY
from tests.manifests.rendered import target_files

TEXT = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_readme_has_at_most_700_words() -> None:
    assert len(TEXT.split()) <= 700


def test_own_clusters_come_before_the_demo_and_the_deployment() -> None:
    commands = ("gpucost serve --prometheus", "make demo", "make deploy")
    positions = [TEXT.index(command) for command in commands]
    assert positions == sorted(positions)
    assert len(TEXT[: positions[0]].split()) < 200


def test_doctor_comes_before_serve() -> None:
    assert TEXT.index("gpucost doctor --prometheus") < TEXT.index("gpucost serve --prometheus")


def test_named_helm_values_are_keys_of_the_charts_and_rendered() -> None:
    """The README names what stock installs lack, and that `manifests render` writes it."""
    schemas = REPOSITORY / "tests/manifests/schemas"
    stack = yaml.safe_load((schemas / "kube-prometheus-stack.yaml").read_text())["values"]
    exporter = yaml.safe_load((schemas / "charts.yaml").read_text())["dcgm-exporter"]
    files = target_files("kube-prometheus-stack")
    for chart, keys, names in (
        ("kube-prometheus-stack", stack, {"kube-prometheus-stack"}),
        ("dcgm-exporter", exporter, {"dcgm-exporter", "dcgm-exporter-shared", "dcgm-exporter-dra"}),
    ):
        (line,) = re.findall(rf"^- {chart}: (.*)$", TEXT, re.MULTILINE)
        rendered = [yaml.safe_load(files[f"helm/{name}.yaml"]) for name in sorted(names)]
        paths = re.findall(r"`([a-z][\w.-]*)`", line)
        assert len(paths) >= 2
        for path in paths:
            section, _, key = path.rpartition(".")
            assert key in keys[section or "top"], f"{chart} has no {path}"
            assert any(_has(values, path.split(".")) for values in rendered), f"no rendered file of {chart} has {path}"
        for variable in re.findall(r"`([A-Z_]{2,})`", line):
            assert any(variable in files[f"helm/{name}.yaml"] for name in names)


def _has(values: Any, keys: list[str]) -> bool:
    return not keys or (keys[0] in values and _has(values[keys[0]], keys[1:]))
