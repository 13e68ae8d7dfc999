"""The generated pages are current and complete."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from click import Command, Context, Group
from samtranslator.yaml_helper import yaml_parse

from authoring.reference import __main__ as reference
from authoring.reference.command_line import commands, paragraphs
from authoring.reference.metrics import MEANINGS, emitted_metrics, metrics_page, recorded_series
from authoring.reference.recommendations import recommendations_page
from authoring.reference.settings import alerts_page
from authoring.reference.template import RUNBOOK, anchor, runbook_section
from gpucost.features.alerting.rule_kinds import RULES
from gpucost.features.recommendations.kinds import KINDS_BY_NAME
from gpucost.sources.prometheus import queries
from gpucost_cli.main import cli
from gpucost_devstack.template import REPOSITORY, TEMPLATE


@cache
def rendered() -> dict[str, str]:
    """All files, rendered after the collection of the tests, because that takes seconds."""
    return reference.files()


@pytest.mark.tools  # seconds
def test_committed_pages_are_current() -> None:
    for name, text in rendered().items():
        assert (REPOSITORY / name).read_text(encoding="utf-8") == text, f"{name}: run: make reference"


@pytest.mark.tools  # seconds
def test_check_names_outdated_and_missing_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main([], tmp_path) == 0
    assert reference.main(["--check"], tmp_path) == 0
    (tmp_path / "docs" / "reference" / "cli.md").write_text("old")
    (tmp_path / "docs" / "reference" / "metrics.md").unlink()
    assert reference.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err.splitlines() == [
        "docs/reference/cli.md is outdated; run: make reference",
        "docs/reference/metrics.md is outdated; run: make reference",
    ]
    assert reference.main(["--chekc"], tmp_path) == 2


def test_guide_of_alerts_has_a_row_for_every_kind_of_rule() -> None:
    guide = (REPOSITORY / reference.ALERTS_PAGE).read_text(encoding="utf-8")
    row = "| `waste` | an hour's waste reaches"
    assert guide.count(row) == 1
    assert alerts_page(guide.replace(row, "| `waste` | old")) == guide
    assert [line.split("`")[1] for line in guide.splitlines() if line.startswith("| `")] == [
        rule.kind for rule in RULES
    ]


def test_page_of_recommendations_has_two_rows_for_every_kind() -> None:
    text = (REPOSITORY / reference.RECOMMENDATIONS_PAGE).read_text(encoding="utf-8")
    row = "| `idle` | utilization was under 2%"
    assert recommendations_page(text.replace(row, "| `idle` | old")) == text
    first_cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    names = [name for cell in first_cells for name in re.findall("`(.+?)`", cell) if name in KINDS_BY_NAME]
    assert sorted(names) == sorted(2 * list(KINDS_BY_NAME))


def test_every_command_and_option_is_on_the_page() -> None:
    sections = re.split(r"^## ", rendered()["docs/reference/cli.md"], flags=re.MULTILINE)
    paths = [path for path, _ in commands(cli, "gpucost")]
    assert "gpucost settings schema" in paths
    for path, command in commands(cli, "gpucost"):
        (section,) = [text for text in sections if text.startswith(f"`{path}`\n")]
        for parameter in command.params:
            if getattr(parameter, "hidden", False):
                continue
            names = [name for name in parameter.opts if name.startswith("-")]
            assert all(f"`{name}`" in section for name in names), (path, names)


def test_every_command_has_an_example_or_commands() -> None:
    sections = re.split(r"^## ", rendered()["docs/reference/cli.md"], flags=re.MULTILINE)
    for path, command in commands(cli, "gpucost"):
        (section,) = [text for text in sections if text.startswith(f"`{path}`\n")]
        expected = "Commands: " if isinstance(command, Group) else "Example:"
        assert expected in section, path
    assert cli.list_commands(Context(cli))


def test_indented_help_is_rendered_as_python_3_13_stores_it() -> None:
    command = Command("list", help="List alerts.\n\n    \b\n    Example:\n      gpucost alerts list\n    ")
    assert list(paragraphs(command)) == ["List alerts.", "Example:", "```sh\ngpucost alerts list\n```"]


def test_every_parameter_output_and_alarm_is_on_the_page() -> None:
    template = yaml_parse(TEMPLATE.read_text(encoding="utf-8"))
    alarms = [name for name, resource in template["Resources"].items() if resource["Type"] == "AWS::CloudWatch::Alarm"]
    assert len(alarms) > 10
    for name in (*template["Parameters"], *template["Outputs"], *template["Rules"], *alarms):
        assert rendered()["docs/reference/template.md"].count(f"\n| `{name}` |") == 1, name


def test_alarm_without_runbook_section_is_refused() -> None:
    with pytest.raises(ValueError, match="no heading with `NewAlarm`"):
        runbook_section("NewAlarm")
    anchors = {anchor(heading) for heading in re.findall(r"^## (.+)$", RUNBOOK.read_text(), re.MULTILINE)}
    assert runbook_section("PricesErrorsAlarm") in anchors
    assert runbook_section("PricesErrorsAlarm") != runbook_section("ApiErrorsAlarm")


def test_every_emitted_metric_has_a_meaning() -> None:
    assert set(emitted_metrics()) == set(MEANINGS)


def test_metrics_of_alarms_are_emitted() -> None:
    named = set(re.findall(r"`GpuCost (\w+)`", rendered()["docs/reference/template.md"]))
    assert named
    assert named <= set(emitted_metrics())


def test_metrics_page_names_queried_and_recorded_metrics() -> None:
    page = metrics_page()
    for metric in (
        queries.REQUESTS,
        queries.PHASE,
        queries.NODE_LABELS,
        queries.POD_RESOURCE_CLAIMS,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "neuroncore_utilization_ratio",
    ):
        assert page.count(f"\n| `{metric}` |") == 1, metric
    assert {"pod:gpucost_gpus", "cluster:gpucost_gpus:sum"} <= set(recorded_series())


def test_every_route_parameter_and_field_is_on_the_page() -> None:
    document = json.loads((REPOSITORY / "docs" / "reference" / "openapi.json").read_text(encoding="utf-8"))
    sections = re.split(r"^## ", rendered()["docs/reference/http-api.md"], flags=re.MULTILINE)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            (section,) = [text for text in sections if text.startswith(f"`{method.upper()} {path}`\n")]
            for parameter in operation.get("parameters", ()):
                assert f"`{parameter['name']}`" in section, (path, parameter["name"])
    for name, schema in document["components"]["schemas"].items():
        (section,) = [text for text in sections if text.startswith(f"{name}\n")]
        assert all(f"\n| `{field}` |" in section for field in schema.get("properties", {})), name
