"""`cluster/aws/collector-role.yaml`: only the collector gets the role, which may only write to the workspace."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from cfnlint.decode import decode

from gpucost_devstack.iam.intrinsics import Resolver
from gpucost_devstack.iam.simulator import simulator
from tests.manifests.rendered import ACCOUNT, CLUSTER, target_files

ISSUER = "oidc.eks.us-east-1.amazonaws.com/id/ABCDEF0123456789"
TRUSTS = {
    "pod-identity": f'account_id: "{ACCOUNT}"\n',
    "irsa": f'account_id: "{ACCOUNT}"\ncollector_role: {{trust: irsa, oidc_provider: {ISSUER}}}\n',
}


def deployed(target: str, trust: str) -> tuple[dict[str, Any], str]:
    """Return the resources that CloudFormation creates with the rendered parameters, and the workspace's ARN."""
    template, problems = decode(str(CLUSTER / "aws/collector-role.yaml"))
    assert not problems
    files = target_files(target, TRUSTS[trust])
    parameters = {
        parameter["ParameterKey"]: parameter["ParameterValue"]
        for parameter in json.loads(files["aws/collector-role.parameters.json"])
    }
    assert parameters.keys() == template["Parameters"].keys()
    resolver = Resolver(template, parameters, {}, stack="collector", account=ACCOUNT, region="us-east-1")
    return {
        name: resolver.resolve(resource["Properties"])
        for name, resource in template["Resources"].items()
        if resolver.is_condition_true(resource.get("Condition"))
    }, parameters["WorkspaceArn"]


def is_allowed(
    action: str,
    resource: str,
    *,
    principal: str = f"arn:aws:iam::{ACCOUNT}:role/collector",
    context: Mapping[str, str] | None = None,
    identity: Any = None,
    trust: Any = None,
) -> bool:
    (answer,) = simulator().allows(
        [
            {
                "request": {
                    "principal": principal,
                    "action": action,
                    "resource": {"resource": resource, "accountId": ACCOUNT},
                    "contextVariables": dict(context or {}),
                },
                "identityPolicies": [] if identity is None else [{"name": "write", "policy": identity}],
                "resourcePolicy": trust,
                "serviceControlPolicies": [],
                "resourceControlPolicies": [],
            }
        ]
    )
    return answer


@pytest.mark.parametrize("trust", TRUSTS)
def test_role_may_write_to_its_workspace_only(trust: str) -> None:
    resources, workspace = deployed("otel-collector", trust)
    policy = resources["Write"]["PolicyDocument"]
    assert is_allowed("aps:RemoteWrite", workspace, identity=policy)
    assert not is_allowed("aps:RemoteWrite", workspace.replace("ws-", "ws-other-"), identity=policy)
    for action in ("aps:QueryMetrics", "aps:DeleteWorkspace", "aps:CreateScraper"):
        assert not is_allowed(action, workspace, identity=policy)


@pytest.mark.parametrize(
    ("target", "namespace", "account"),
    [
        ("otel-collector", "observability", "amp-ingest"),
        ("prometheus-agent", "observability", "amp-ingest"),
        ("kube-prometheus-stack", "monitoring", "kube-prometheus-stack-prometheus"),
    ],
)
def test_pod_identity_trusts_the_collectors_service_account_only(target: str, namespace: str, account: str) -> None:
    resources, _ = deployed(target, "pod-identity")
    association, role = resources["Association"], resources["PodIdentityRole"]
    assert "IrsaRole" not in resources
    assert (association["ClusterName"], association["Namespace"], association["ServiceAccount"]) == (
        "gpu-cost-poc",
        namespace,
        account,
    )
    tags = {
        "aws:RequestTag/eks-cluster-name": "gpu-cost-poc",
        "aws:RequestTag/kubernetes-namespace": namespace,
        "aws:RequestTag/kubernetes-service-account": account,
        "aws:SourceAccount": ACCOUNT,
    }
    arn, trust = f"arn:aws:iam::{ACCOUNT}:role/{role['RoleName']}", role["AssumeRolePolicyDocument"]
    for action in ("sts:AssumeRole", "sts:TagSession"):
        assert is_allowed(action, arn, principal="pods.eks.amazonaws.com", context=tags, trust=trust)
        assert not is_allowed(action, arn, principal="ec2.amazonaws.com", context=tags, trust=trust)
        for key in tags:
            other = {**tags, key: "other"}
            assert not is_allowed(action, arn, principal="pods.eks.amazonaws.com", context=other, trust=trust)


def test_irsa_trusts_the_collectors_service_account_only() -> None:
    resources, _ = deployed("kube-prometheus-stack", "irsa")
    assert not {"PodIdentityRole", "Association"} & resources.keys()
    (statement,) = json.loads(resources["IrsaRole"]["AssumeRolePolicyDocument"])["Statement"]
    assert statement == {
        "Effect": "Allow",
        "Principal": {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/{ISSUER}"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {
            "StringEquals": {
                f"{ISSUER}:sub": "system:serviceaccount:monitoring:kube-prometheus-stack-prometheus",
                f"{ISSUER}:aud": "sts.amazonaws.com",
            }
        },
    }


@pytest.mark.parametrize(
    ("target", "file"),
    [
        ("kube-prometheus-stack", "helm/kube-prometheus-stack.yaml"),
        ("otel-collector", "collection/access.yaml"),
        ("prometheus-agent", "collection/access.yaml"),
    ],
)
def test_service_account_names_the_role_with_irsa_only(target: str, file: str) -> None:
    role = f"eks.amazonaws.com/role-arn: arn:aws:iam::{ACCOUNT}:role/gpucost-collector-gpu-cost-poc\n"
    assert role in target_files(target, TRUSTS["irsa"])[file]
    assert "role-arn" not in target_files(target, TRUSTS["pod-identity"])[file]
    resources, _ = deployed(target, "irsa")
    assert resources["IrsaRole"]["RoleName"] == "gpucost-collector-gpu-cost-poc"
