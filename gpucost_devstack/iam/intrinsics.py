"""Resolves the intrinsic functions of CloudFormation that policies use."""

import re
from collections.abc import Mapping
from typing import Any

from gpucost.core.errors import GpuCostError

ARN_PATTERNS = {
    "AWS::DynamoDB::Table": "dynamodb:{region}:{account}:table/{name}",
    "AWS::IAM::Role": "iam::{account}:role/{name}",
    "AWS::KMS::Key": "kms:{region}:{account}:key/{name}",
    "AWS::Lambda::Alias": "lambda:{region}:{account}:function:{name}:live",
    "AWS::Lambda::Function": "lambda:{region}:{account}:function:{name}",
    "AWS::Logs::LogGroup": "logs:{region}:{account}:log-group:{name}",
    "AWS::S3::Bucket": "s3:::{name}",
    "AWS::SNS::Topic": "sns:{region}:{account}:{name}",
    "AWS::SQS::Queue": "sqs:{region}:{account}:{name}",
}
REFERRED_TO_BY_ARN = {"AWS::Lambda::Alias", "AWS::SNS::Topic"}
NO_VALUE = object()


class Resolver:
    """Resolves parts of one template.

    Args:
        template: the transformed template.
        parameters: parameters that differ from their defaults.
        physical: values of `Ref` for existing resources. The others get generated names.
        stack: the stack's name.
        account: twelve digits.
        region: of the stack.
    """

    def __init__(
        self,
        template: Mapping[str, Any],
        parameters: Mapping[str, str],
        physical: Mapping[str, str],
        *,
        stack: str,
        account: str,
        region: str,
    ) -> None:
        self._template = template
        self._physical = physical
        self._stack, self._account, self._region = stack, account, region
        self.partition = partition_of(region)
        self._values: dict[str, Any] = {
            "AWS::AccountId": account,
            "AWS::NoValue": NO_VALUE,
            "AWS::Partition": self.partition,
            "AWS::Region": region,
            "AWS::StackName": stack,
        }
        for name, declared in template.get("Parameters", {}).items():
            value = str(parameters.get(name, declared.get("Default", "")))
            self._values[name] = value.split(",") if declared["Type"] == "CommaDelimitedList" else value

    def resolve(self, part: Any) -> Any:
        """A part of the template without intrinsic functions.

        Raises:
            GpuCostError: it uses a function that is not supported here.
        """
        if isinstance(part, list):
            return [value for value in map(self.resolve, part) if value is not NO_VALUE]
        if not isinstance(part, dict):
            return part
        if len(part) == 1:
            ((function, argument),) = part.items()
            if function == "Ref" or function.startswith("Fn::"):
                return self._call(function, argument)
        resolved = {name: self.resolve(value) for name, value in part.items()}
        return {name: value for name, value in resolved.items() if value is not NO_VALUE}

    def is_condition_true(self, condition: str | None) -> bool:
        """Whether a condition of the template is true. None means no condition."""
        return condition is None or self._is_true(self._template["Conditions"][condition])

    def ref(self, logical: str) -> Any:
        """The value of `Ref`."""
        if logical in self._values:
            return self._values[logical]
        kind = self._kind(logical)
        if logical in self._physical:
            return self._physical[logical]
        return self.arn(logical) if kind in REFERRED_TO_BY_ARN else self._name(logical)

    def arn(self, logical: str) -> str:
        """The ARN of a resource."""
        kind = self._kind(logical)
        if kind not in ARN_PATTERNS:
            raise GpuCostError(f"the ARN of a {kind} ({logical}) is not known; add its form to {__name__}.ARNS")
        form = ARN_PATTERNS[kind].format(region=self._region, account=self._account, name=self._name(logical))
        return f"arn:{self.partition}:{form}"

    def _name(self, logical: str) -> str:
        """The last part of a queue's address, a topic's ARN, or the name itself."""
        return re.split("[/:]", self._physical.get(logical, f"{self._stack}-{logical}"))[-1]

    def _kind(self, logical: str) -> str:
        if logical not in self._template["Resources"]:
            raise GpuCostError(f"the template refers to {logical!r}, which it does not declare")
        return str(self._template["Resources"][logical]["Type"])

    def _call(self, function: str, argument: Any) -> Any:
        if function == "Ref":
            return self.ref(argument)
        if function == "Fn::GetAtt":
            logical, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
            return self._attribute(logical, attribute)
        if function == "Fn::If":
            condition, true, false = argument
            return self.resolve(true if self.is_condition_true(condition) else false)
        if function == "Fn::Join":
            separator, values = argument
            return separator.join(map(str, self.resolve(values)))
        if function == "Fn::Sub":
            text, more = argument if isinstance(argument, list) else (argument, {})
            return re.sub(r"\$\{(!?)([^}]+)\}", lambda match: self._substitute(match, more), text)
        raise GpuCostError(f"{function} is not known; add it to {__name__}")

    def _substitute(self, match: re.Match[str], more: Mapping[str, Any]) -> str:
        literal, name = match.groups()
        if literal:
            return f"${{{name}}}"
        if name in more:
            return str(self.resolve(more[name]))
        logical, _, attribute = name.partition(".")
        return str(self._attribute(logical, attribute) if attribute else self.ref(name))

    def _attribute(self, logical: str, attribute: str) -> str:
        if attribute == "Arn":
            return self.arn(logical)
        if attribute.endswith("Name"):
            return self._name(logical)
        raise GpuCostError(f"attribute {attribute} of {logical} is not known; add it to {__name__}")

    def _is_true(self, condition: Mapping[str, Any]) -> bool:
        ((function, argument),) = condition.items()
        if function == "Condition":
            return self.is_condition_true(argument)
        if function == "Fn::Equals":
            first, second = self.resolve(argument)
            return bool(first == second)
        if function == "Fn::Not":
            return not self._is_true(argument[0])
        if function in ("Fn::And", "Fn::Or"):
            return (all if function == "Fn::And" else any)(map(self._is_true, argument))
        raise GpuCostError(f"condition function {function} is not known; add it to {__name__}")


def partition_of(region: str) -> str:
    """`aws`, or that of China or GovCloud."""
    return next(
        (name for prefix, name in (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov")) if region.startswith(prefix)), "aws"
    )
