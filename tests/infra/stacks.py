"""Resolves a template like CloudFormation for a stack: parameters, conditions, rules and functions."""

import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from gpucost_devstack.template import REPOSITORY, transformed_template

Template = dict[str, Any]
ACCOUNT = "111122223333"
SUFFIXES = {"aws": "amazonaws.com", "aws-us-gov": "amazonaws.com", "aws-cn": "amazonaws.com.cn"}
PARTITIONS = {"us-gov-": "aws-us-gov", "cn-": "aws-cn"}


def read_template(path: Path, region: str = "eu-central-1") -> Template:
    """Read a template. SAM templates are transformed."""
    document: Template = yaml_parse(path.read_text())
    return transformed_template(path, region=region) if "Transform" in document else document


class Stack:
    """A template with a name, parameters and a region.

    What only AWS decides (physical ids, attributes) resolves to a text that names the stack and the logical id.
    """

    def __init__(
        self, name: str, template: Template, parameters: Mapping[str, Any] | None = None, region: str = "eu-central-1"
    ) -> None:
        self.name = name
        self.template = template
        self.region = region
        self._parameters = {
            **{key: declared.get("Default") for key, declared in template.get("Parameters", {}).items()},
            **(parameters or {}),
        }
        partition = next((value for prefix, value in PARTITIONS.items() if region.startswith(prefix)), "aws")
        guid = uuid.uuid5(uuid.NAMESPACE_DNS, f"{region}/{name}")
        self._pseudo = {
            "AWS::StackName": name,
            "AWS::StackId": f"arn:{partition}:cloudformation:{region}:{ACCOUNT}:stack/{name}/{guid}",
            "AWS::AccountId": ACCOUNT,
            "AWS::Region": region,
            "AWS::Partition": partition,
            "AWS::URLSuffix": SUFFIXES[partition],
            "AWS::NoValue": None,
        }

    def holds(self, condition: str) -> bool:
        """Whether a condition is true."""
        return bool(self.resolve(self.template["Conditions"][condition]))

    def resources(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(logical ID, type, resolved properties) of each resource whose condition is true."""
        for logical, body in self.template["Resources"].items():
            if "Condition" not in body or self.holds(body["Condition"]):
                yield logical, body["Type"], self.resolve(body.get("Properties", {}))

    def properties(self, logical: str) -> dict[str, Any]:
        """The resolved properties of one resource.

        Raises:
            KeyError: there is none, or its condition does not hold.
        """
        return {name: properties for name, _, properties in self.resources()}[logical]

    def nested(self) -> Iterator["Stack"]:
        """The nested stacks."""
        for logical, kind, properties in self.resources():
            if kind == "AWS::CloudFormation::Stack":
                document = read_template(REPOSITORY / properties["TemplateURL"])
                yield Stack(f"{self.name}-{logical}", document, properties.get("Parameters"), self.region)

    def refusals(self) -> list[str]:
        """Violations of the template's rules by the parameters."""
        return [
            assertion["AssertDescription"]
            for rule in self.template.get("Rules", {}).values()
            if self.resolve(rule.get("RuleCondition", True))
            for assertion in rule["Assertions"]
            if not self.resolve(assertion["Assert"])
        ]

    def resolve(self, value: Any) -> Any:
        """Resolve a value's functions. Keys and elements with `AWS::NoValue` are removed."""
        if isinstance(value, list):
            return [resolved for element in value if (resolved := self.resolve(element)) is not None]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((function, argument),) = value.items()
            if function in {"Ref", "Condition"} or function.startswith("Fn::"):
                return self._call(function, argument)
        return {key: resolved for key, element in value.items() if (resolved := self.resolve(element)) is not None}

    def _call(self, function: str, argument: Any) -> Any:
        if function == "Ref":
            return self._ref(argument)
        if function == "Condition":
            # Policy statements also have a key with this name.
            return self.holds(argument) if isinstance(argument, str) else {"Condition": self.resolve(argument)}
        if function == "Fn::If":
            condition, then, otherwise = argument
            return self.resolve(then if self.holds(condition) else otherwise)
        if function == "Fn::GetAtt":
            return f"<{self.name}/{argument if isinstance(argument, str) else '.'.join(argument)}>"
        if function == "Fn::Sub":
            return self._sub(argument)
        arguments = self.resolve(argument)
        match function:
            case "Fn::Equals":
                return str(arguments[0]) == str(arguments[1])  # CloudFormation passes numbers as text
            case "Fn::And":
                return all(arguments)
            case "Fn::Or":
                return any(arguments)
            case "Fn::EachMemberEquals":
                return all(member == arguments[1] for member in arguments[0])
            case "Fn::Not":
                return not arguments[0]
            case "Fn::Join":
                return arguments[0].join(str(part) for part in arguments[1])
            case "Fn::Split":
                return arguments[1].split(arguments[0])
            case "Fn::Select":
                return arguments[1][int(arguments[0])]
        raise AssertionError(f"{function} is not known here: teach tests/infra/stacks.py what CloudFormation does")

    def _ref(self, name: str) -> Any:
        if name in self._pseudo:
            return self._pseudo[name]
        if name not in self._parameters:
            return f"<{self.name}/{name}>"
        value = self._parameters[name]
        kind = self.template["Parameters"][name]["Type"]
        return value.split(",") if kind == "CommaDelimitedList" and isinstance(value, str) else value

    def _sub(self, argument: Any) -> str:
        text, variables = (argument, {}) if isinstance(argument, str) else argument

        def replacement(match: re.Match[str]) -> str:
            name = match[1]
            if name.startswith("!"):
                return f"${{{name[1:]}}}"
            if name in variables:
                return str(self.resolve(variables[name]))
            return str(self._call("Fn::GetAtt", name) if "." in name else self._ref(name))

        return re.sub(r"\$\{([^}]+)\}", replacement, text)


def of_type(template: Template, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, body in template["Resources"].items():
        if body["Type"] == kind:
            yield name, body.get("Properties", {})


EVERYTHING_ON = {
    "AlertEmail": "a@example.com",
    "OperationsEmail": "a@example.com",
    "AmpWorkspaceArn": f"arn:aws:aps:eu-central-1:{ACCOUNT}:workspace/ws-shared",
    "RecordingRules": "true",
    "SpotPrices": "true",
    "OnDemandPrices": "true",
    "BillPrices": "true",
    "BillDatabase": "bill",
    "KmsKeyArn": f"arn:aws:kms:eu-central-1:{ACCOUNT}:key/1",
    "LogsKmsKeyArn": f"arn:aws:kms:eu-central-1:{ACCOUNT}:key/4",
    "SecretsKmsKeyArn": f"arn:aws:kms:eu-central-1:{ACCOUNT}:key/2",
    "BillKmsKeyArn": f"arn:aws:kms:eu-central-1:{ACCOUNT}:key/3",
    "JwtIssuer": "https://issuer.example.com",
    "ApiConcurrency": "5",
    "ApiSnapshot": "1",
    "CreateWorkspace": "true",
    "CreateGrafana": "true",
    "Grafana": "true",
}
"""Parameters for all templates. A template ignores those that it does not declare."""
UNIQUE_PER_ACCOUNT = {"DomainName"}
"""Parameters that must differ between stacks, such as the domain of an API."""


def templates() -> list[str]:
    """All CloudFormation templates of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "*.yaml", "*.yml"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return [path for path in listed.stdout.split() if "AWSTemplateFormatVersion" in (REPOSITORY / path).read_text()]


def stack(name: str, template: Template, parameters: Mapping[str, Any], region: str = "eu-central-1") -> Stack:
    """A stack with the parameters that its template declares. Required ones contain the stack's name."""
    declared = template.get("Parameters", {})
    required = {
        key: f"{name}-{key}" for key, body in declared.items() if "Default" not in body or key in UNIQUE_PER_ACCOUNT
    }
    if parameters and "CertificateArn" in declared:
        required["CertificateArn"] = f"arn-of-a-certificate-of-{name}"
    elif not parameters:
        required = {key: value for key, value in required.items() if key not in UNIQUE_PER_ACCOUNT}
    return Stack(name, template, {**required, **{k: v for k, v in parameters.items() if k in declared}}, region)
