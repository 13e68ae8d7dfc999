"""Parameters that require each other: an incomplete set is refused with a sentence before anything is created."""

import pytest

from tests.infra.conftest import Template
from tests.infra.stacks import Stack

ISSUER = {"JwtIssuer": "https://issuer.example.com", "JwtAudience": "gpucost"}
BILL = {"BillPrices": "true", "BillDatabase": "bill", "BillBucket": "data", "BillResultsBucket": "results"}
NETWORK = {"SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1"}
WORKSPACE = {"AmpWorkspaceArn": "arn:aws:aps:eu-central-1:111122223333:workspace/ws-1"}


def without(parameters: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if name not in names}


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        ISSUER,
        {**ISSUER, "PageClientId": "page"},
        {**ISSUER, "PageClientId": "page", "PageTokenHost": "https://token.example.com"},
        BILL,
        {"BillPrices": "true"},
        NETWORK,
        {**WORKSPACE, "RecordingRules": "true"},
        {"CreateWorkspace": "true"},
        {"CreateWorkspace": "true", "CreateGrafana": "true"},
        {"DomainName": "cost.example.com", "CertificateArn": "arn"},
    ],
)
def test_complete_sets_of_parameters_are_accepted(template: Template, parameters: dict[str, str]) -> None:
    assert Stack("gpucost-dev", template, parameters).refusals() == []


@pytest.mark.parametrize(
    ("parameters", "refusal"),
    [
        (without(NETWORK, "SecurityGroupIds"), "SubnetIds needs SecurityGroupIds"),
        (without(NETWORK, "SubnetIds"), "SecurityGroupIds needs SubnetIds"),
        (without(ISSUER, "JwtAudience"), "JwtIssuer needs JwtAudience"),
        (without(ISSUER, "JwtIssuer"), "JwtAudience needs JwtIssuer"),
        ({"PageClientId": "page"}, "PageClientId needs JwtIssuer"),
        ({**ISSUER, "PageTokenHost": "https://token.example.com"}, "PageTokenHost needs PageClientId"),
        ({"DomainName": "cost.example.com"}, "DomainName needs CertificateArn"),
        ({"CertificateArn": "arn"}, "CertificateArn needs DomainName"),
        (without(BILL, "BillBucket"), "BillDatabase needs BillBucket"),
        (without(BILL, "BillResultsBucket"), "BillDatabase needs BillResultsBucket"),
        (without(BILL, "BillPrices"), "BillDatabase needs BillPrices=true"),
        ({"BillBucket": "data"}, "BillBucket needs BillDatabase"),
        ({"BillResultsBucket": "results"}, "BillResultsBucket needs BillDatabase"),
        ({"BillKmsKeyArn": "arn"}, "BillKmsKeyArn needs BillDatabase"),
        ({"RecordingRules": "true"}, "RecordingRules=true needs AmpWorkspaceArn"),
        ({"CreateGrafana": "true"}, "CreateGrafana=true needs CreateWorkspace=true"),
    ],
)
def test_incomplete_set_of_parameters_is_refused(template: Template, parameters: dict[str, str], refusal: str) -> None:
    assert Stack("gpucost-dev", template, parameters).refusals() == [refusal]


def test_every_rule_is_tested() -> None:
    """Each rule of the template is in the table above."""
    (table,) = [mark.args[1] for mark in test_incomplete_set_of_parameters_is_refused.pytestmark]  # type: ignore[attr-defined]
    from gpucost_devstack.template import transformed_template

    written = [
        assertion["AssertDescription"]
        for rule in transformed_template()["Rules"].values()
        for assertion in rule["Assertions"]
    ]
    assert sorted(written) == sorted(refusal for _, refusal in table)


def test_rules_use_only_functions_that_cloudformation_allows_there(template: Template) -> None:
    """CloudFormation does not allow `Fn::Join` and conditions in rules."""
    allowed = {
        "Fn::And",
        "Fn::Contains",
        "Fn::EachMemberEquals",
        "Fn::EachMemberIn",
        "Fn::Equals",
        "Fn::Not",
        "Fn::Or",
        "Fn::RefAll",
        "Fn::ValueOf",
        "Fn::ValueOfAll",
        "Ref",
    }

    def functions(value: object) -> set[str]:
        if isinstance(value, dict):
            return {str(key) for key in value} | {name for element in value.values() for name in functions(element)}
        return {name for element in value for name in functions(element)} if isinstance(value, list) else set()

    for rule in template["Rules"].values():
        used = functions(rule.get("RuleCondition", {})) | functions([each["Assert"] for each in rule["Assertions"]])
        assert used <= allowed, used
