"""IAM lets a service assume a role of the deployment only for resources of the deployment's account."""

from gpucost_devstack.aws import ACCOUNT, STACK
from gpucost_devstack.iam.authorizer import PermissionUse, evaluate
from gpucost_devstack.iam.calls import PermissionNeeded
from gpucost_devstack.iam.intrinsics import Resolver
from gpucost_devstack.iam.policies import policies_of
from gpucost_devstack.template import REGION, transformed_template
from tests.iam.whole_deployment import OTHER_ACCOUNT, PARAMETERS

SOURCES = {
    "lambda.amazonaws.com": "arn:aws:lambda:{region}:{account}:function:f",
    "scheduler.amazonaws.com": "arn:aws:scheduler:{region}:{account}:schedule-group/default",
}
"""ARNs of the resources for which a service assumes roles."""


def test_roles_are_assumed_only_for_the_account() -> None:
    template = transformed_template()
    resolver = Resolver(template, PARAMETERS, {}, stack=STACK, account=ACCOUNT, region=REGION)
    policies = policies_of(template, resolver)
    trusts = [statement for statement in policies.statements if "/trust/" in statement.title]
    assert len(trusts) == 11

    def decisions(account: str | None) -> list[bool]:
        uses = []
        for trust in trusts:
            service = trust.body["Principal"]["Service"]
            arn = SOURCES[service].format(region=REGION, account=account)
            context = (("aws:SourceAccount", (account,)), ("aws:SourceArn", (arn,))) if account else ()
            uses.append(PermissionUse(service, PermissionNeeded("sts:AssumeRole", trust.holder, context)))
        return evaluate(policies, uses)

    assert decisions(ACCOUNT) == [True] * len(trusts)
    assert decisions(OTHER_ACCOUNT) == [False] * len(trusts)
    assert decisions(None) == [False] * len(trusts)
