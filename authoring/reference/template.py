"""The reference of the stack's template: parameters, outputs and alarms."""

import re
from collections.abc import Mapping
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from authoring.reference.markdown import code, page, table
from gpucost_devstack.template import REPOSITORY, TEMPLATE

RUNBOOK = REPOSITORY / "docs" / "how-to" / "runbook.md"
_COMPARISONS = {
    "GreaterThanThreshold": ">",
    "GreaterThanOrEqualToThreshold": "≥",
    "LessThanThreshold": "<",
    "LessThanOrEqualToThreshold": "≤",
}
_REPOSITORY_LINK = re.compile(r"\bdocs/(?:how-to|contributing|reference|tutorials|explanation)/[\w-]+\.md")
INTRODUCTION = """
Every parameter has a default. `gpucost init` and `make deploy` ask for the most important ones and write them to `samconfig.toml`; add others there, to `parameter_overrides` ([deploy](../how-to/deploy.md)).
"""  # noqa: E501 - one line for each paragraph


def template_page() -> str:
    """Render the page."""
    template = yaml_parse(TEMPLATE.read_text(encoding="utf-8"))
    parts = [INTRODUCTION, "## Parameters"]
    groups = template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    parameters = template["Parameters"]
    header = ("Parameter", "Type and allowed values", "Default", "Meaning")
    grouped: set[str] = set()
    for group in groups:
        names = group["Parameters"]
        grouped |= set(names)
        parts += [f"### {group['Label']['default']}", table(header, [_parameter(n, parameters[n]) for n in names])]
    if others := [name for name in parameters if name not in grouped]:
        parts += ["### Other parameters", table(header, [_parameter(name, parameters[name]) for name in others])]
    rules = [(code(name), *_rule(rule)) for name, rule in template["Rules"].items()]
    outputs = [(code(name), _linked(output["Description"])) for name, output in template["Outputs"].items()]
    alarms = [_alarm(name, alarm["Properties"]) for name, alarm in alarms_of(template).items()]
    parts += [
        "## Parameters that need each other",
        "CloudFormation checks these rules before it creates resources.",
        table(("Rule", "Message"), rules),
        "## Outputs",
        table(("Output", "Meaning"), outputs),
        "## Alarms",
        "CloudWatch sends alarms to the topic `OperationsTopicArn`, also when they end. The metrics with the namespace"
        " `GpuCost` are in [metrics.md](metrics.md).",
        table(("Alarm", "Meaning", "Metric", "Alarm if", "Runbook"), alarms),
    ]
    return page("Template", "template.yaml", *parts)


def alarms_of(template: Mapping[str, Any]) -> dict[str, Any]:
    """The alarms of a template, by logical name."""
    resources = template["Resources"].items()
    return {name: resource for name, resource in resources if resource["Type"] == "AWS::CloudWatch::Alarm"}


def metric_of(alarm: Mapping[str, Any]) -> tuple[str, str]:
    """The namespace and the name of an alarm's metric, or of the metrics in its expression."""
    if "MetricName" in alarm:
        return alarm["Namespace"], alarm["MetricName"]
    metrics = [query["MetricStat"]["Metric"] for query in alarm["Metrics"] if "MetricStat" in query]
    return metrics[0]["Namespace"], " + ".join(metric["MetricName"] for metric in metrics)


def runbook_section(alarm: str) -> str:
    """The anchor of the section about an alarm.

    Raises:
        ValueError: no heading names the alarm.
    """
    headings = re.findall(r"^## (.+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    for name in (alarm, "…ErrorsAlarm" if alarm.endswith("ErrorsAlarm") else alarm):
        for heading in headings:
            if f"`{name}`" in heading:
                return anchor(heading)
    raise ValueError(f"docs/how-to/runbook.md has no heading with `{alarm}`")


def anchor(heading: str) -> str:
    """The anchor of a heading, as Python-Markdown and GitHub derive it."""
    text = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def _parameter(name: str, parameter: Mapping[str, Any]) -> tuple[str, str, str, str]:
    allowed = ", ".join(code(str(choice)) for choice in parameter.get("AllowedValues", ()))
    bounds = [
        f"{word} {parameter[key]:,}"
        for word, key in (("at least", "MinValue"), ("at most", "MaxValue"))
        if key in parameter
    ]
    kind = {"String": "text", "Number": "number", "CommaDelimitedList": "list, separated by commas"}[parameter["Type"]]
    detail = parameter.get("ConstraintDescription") or allowed or ", ".join(bounds)
    default = parameter.get("Default", "")
    return (
        code(name),
        f"{kind}: {detail}" if detail else kind,
        code(str(default)) if default != "" else "empty",
        _linked(parameter["Description"]),
    )


def _rule(rule: Mapping[str, Any]) -> tuple[str]:
    return (" ".join(assertion["AssertDescription"] for assertion in rule["Assertions"]),)


def _alarm(name: str, alarm: Mapping[str, Any]) -> tuple[str, ...]:
    namespace, metric = metric_of(alarm)
    statistic = alarm.get("Statistic", "Sum")
    threshold = alarm["Threshold"]
    limit = code(threshold["Ref"]) if isinstance(threshold, Mapping) else str(threshold)
    periods, seconds = alarm["EvaluationPeriods"], alarm.get("Period", 3600)
    hours = f"{seconds // 3600} h" if seconds >= 3600 else f"{seconds // 60} min"
    condition = f"{statistic} of {hours} {_COMPARISONS[alarm['ComparisonOperator']]} {limit}"
    if periods > 1:
        condition += f", {periods} times in a row"
    link = f"[runbook](../how-to/runbook.md#{runbook_section(name)})"
    return code(name), alarm["AlarmDescription"], code(f"{namespace} {metric}"), condition, link


def _linked(text: str) -> str:
    """A text whose names of documentation files are links."""
    return _REPOSITORY_LINK.sub(lambda name: f"[{name[0]}](../{name[0].removeprefix('docs/')})", text.strip())
