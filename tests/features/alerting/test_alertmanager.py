"""A real Alertmanager: it accepts alerts, and with the definition for AMP it sends its own alerts through SNS."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
import yaml
from samtranslator.yaml_helper import yaml_parse

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.features.alerting.notifiers.alertmanager import FIRING_ALERT_LIFETIME, AlertmanagerNotifier
from gpucost.features.alerting.ports import RefusedMessageError
from gpucost.features.alerting.rule_kinds import KINDS_BY_NAME
from gpucost.runtime.messages import read_external_alerts
from gpucost_devstack.alertmanager import running_alertmanager
from gpucost_devstack.aws import client_environment, running_aws
from gpucost_devstack.installation import find_program
from gpucost_devstack.template import REPOSITORY
from tests.features.alerting.sample_notifications import FIGURES, SUBJECTS, notification
from tests.kernel_clock import kernel_time
from tests.recording_server import recording_server

pytestmark = pytest.mark.tools

NOW = kernel_time()
LAST = floor_hour(NOW) - HOUR
UNPRINTABLE = "\x01\x02\a\v\x7f\x80\xad\u202e\ue000\ufffd\U000e0001\U0010ffff"


@pytest.fixture(scope="module")
def alertmanager() -> Iterator[str]:
    with running_alertmanager() as url:
        yield url


def no_secret(_name: str) -> str:
    raise AssertionError("a secret was read")


def shown(url: str, rule: str) -> list[dict[str, Any]]:
    answer = requests.get(f"{url}/api/v2/alerts", params={"filter": f'rule="{rule}"'}, timeout=5)
    alerts: list[dict[str, Any]] = answer.json()
    return alerts


def test_alert_is_active_until_resolved_and_never_duplicated(alertmanager: str) -> None:
    alert, started_at = notification(since=LAST - HOUR, hour=LAST, rule="team-waste"), kernel_time()
    notifier = AlertmanagerNotifier(
        alertmanager + "/", secret_value=no_secret, public_url="https://costs.example.com", clock=kernel_time
    )
    for event in ("firing", "firing", "repeat"):
        notifier.send([replace(alert, event=event), notification("digest", "digest")])

    (active,) = shown(alertmanager, "team-waste")
    assert active["labels"] == {
        "alertname": "gpucost-waste",
        "rule": "team-waste",
        "severity": "warning",
        "cluster": "demo",
        "business_unit": "research",
    }
    assert active["status"]["state"] == "active"
    assert "research in cluster demo wastes $1,234.57 per hour" in active["annotations"]["summary"]
    assert "training/llm-7b" in active["annotations"]["description"]
    assert datetime.fromisoformat(active["startsAt"]) == LAST - HOUR
    ends = datetime.fromisoformat(active["endsAt"]) - FIRING_ALERT_LIFETIME
    assert started_at - timedelta(seconds=1) < ends <= kernel_time()
    assert active["generatorURL"].startswith("https://costs.example.com/#/unit/research?")
    notifier.send([replace(alert, event="resolved", workloads=())])
    assert shown(alertmanager, "team-waste") == []


def test_every_kind_and_long_names_are_accepted(alertmanager: str) -> None:
    notifier = AlertmanagerNotifier(alertmanager, secret_value=no_secret, clock=kernel_time)
    notifications = [notification(kind, rule="kinds", since=LAST, hour=LAST) for kind in SUBJECTS]
    strange = SUBJECTS["waste"]._replace(business_unit='ü"\n' * 500)
    notifier.send([*notifications, notification(rule="kinds", subject=strange, since=LAST, hour=LAST)])
    assert len(shown(alertmanager, "kinds")) == len(notifications) + 1


def test_bearer_token_is_read_for_each_message_and_never_logged() -> None:
    tokens_in_turn = iter(["first-token", "second-token", "third-token"])

    def notifier(url: str) -> AlertmanagerNotifier:
        return AlertmanagerNotifier(
            url, secret="gpucost/am", secret_value=lambda _: json.dumps({"url": url, "token": next(tokens_in_turn)})
        )

    with recording_server() as (url, received):
        receiver = notifier(url)
        receiver.send([notification()])
        receiver.send([notification()])
    assert [headers["authorization"] for _, headers in received] == ["Bearer first-token", "Bearer second-token"]
    with (
        recording_server(401) as (url, _),
        pytest.raises(RefusedMessageError, match="refused the alerts: HTTP 401") as failure,
    ):
        notifier(url).send([notification()])
    assert "third-token" not in str(failure.value)
    with pytest.raises(SourceError, match="could not be reached"):
        AlertmanagerNotifier("http://127.0.0.1:9", secret_value=no_secret).send([notification()])


def eventually(poll: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if polled := poll():
            return polled
        time.sleep(0.1)
    raise AssertionError("no message arrived")


def test_definition_for_amp_sends_messages_the_alert_function_reads(tmp_path: Path) -> None:
    definition = yaml.safe_load((REPOSITORY / "cluster" / "amp-alertmanager.yaml").read_text())
    with running_aws() as aws:
        environment = client_environment(aws)
        region = environment["AWS_DEFAULT_REGION"]
        options = {"endpoint_url": aws, "region_name": region, "aws_access_key_id": "t", "aws_secret_access_key": "t"}
        sns, sqs = boto3.client("sns", **options), boto3.client("sqs", **options)  # type: ignore[call-overload]
        topic, queue = sns.create_topic(Name="events")["TopicArn"], sqs.create_queue(QueueName="received")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        config = yaml.safe_load(definition["alertmanager_config"])
        (sns_config,) = config["receivers"][1]["sns_configs"]
        sns_config.update(
            {"topic_arn": topic, "api_url": aws, "sigv4": {"region": region, "access_key": "t", "secret_key": "t"}}
        )
        config["route"]["routes"][0]["group_wait"] = "0s"
        config["templates"] = ["*.tmpl"]
        files = {"amp.tmpl": definition["template_files"]["default_template"]}
        with running_alertmanager(yaml.safe_dump(config), files) as url:
            labels = {
                "alertname": "GPUNodePoolNearLimit",
                "gpucost": "true",
                "nodepool": 'the "big" <pool>',
                "cluster": "\U0001f600 \\x41 'c' \t{{ 1 }}",
                "odd": UNPRINTABLE,
            }
            started_at = NOW - timedelta(minutes=7)
            alert = {"labels": labels, "annotations": {"summary": "at 93% ü\n\\"}, "startsAt": started_at.isoformat()}
            requests.post(f"{url}/api/v2/alerts", json=[alert, {"labels": {"alertname": "x"}}], timeout=5)
            (message,) = eventually(lambda: sqs.receive_message(QueueUrl=queue).get("Messages"))
    received = read_external_alerts(json.loads(message["Body"])["Message"], kernel_time())
    (amp_alert,) = received.check(kernel_time()).valid.alerts
    labels["odd"] = " " * len(UNPRINTABLE)  # Go's %q escapes these characters in ways that JSON does not have
    assert (amp_alert.status, amp_alert.labels, amp_alert.annotations) == ("firing", labels, alert["annotations"])
    assert abs(amp_alert.starts_at - started_at) < timedelta(seconds=1)


def test_rules_for_amp_fire_on_metric_names_of_all_karpenter_versions(tmp_path: Path) -> None:
    """promtool runs the template's own rules over series of each version."""
    source = yaml_parse((REPOSITORY / "dashboards" / "amp-alerts.yaml").read_text())
    data = source["Resources"]["Rules"]["Properties"]["Data"]["Fn::Sub"]
    (tmp_path / "rules.yaml").write_text(data.replace("${Minutes}", "5"))
    gpu = 'cluster="c",nodepool="gpu",resource_type="nvidia.com/gpu"'
    tests = []
    for name in ("nodepools", "nodepool", "provisioner"):
        for used, fires in ((15, True), (14, False)):
            series = [
                {"series": f"karpenter_{name}_usage{{{gpu}}}", "values": f"{used}x20"},
                {"series": f"karpenter_{name}_limit{{{gpu}}}", "values": "16x20"},
                {
                    "series": f'karpenter_{name}_limit{{cluster="c",nodepool="gpu",resource_type="cpu"}}',
                    "values": "1x20",
                },
            ]
            expected = {
                "exp_labels": {
                    "severity": "warning",
                    "gpucost": "true",
                    "cluster": "c",
                    "nodepool": "gpu",
                    "resource_type": "nvidia.com/gpu",
                },
                "exp_annotations": {"summary": "GPU node pool at 93.75% of its limit"},
            }
            for at, expects in (("4m", []), ("6m", [expected] if fires else [])):
                rule = {"eval_time": at, "alertname": "GPUNodePoolNearLimit", "exp_alerts": expects}
                tests.append({"interval": "1m", "input_series": series, "alert_rule_test": [rule]})
    quota = 'cluster="c",namespace="ml",resource="requests.nvidia.com/gpu"'
    tests.append(
        {
            "interval": "1m",
            "input_series": [
                {"series": f'kube_resourcequota{{{quota},type="{kind}"}}', "values": f"{value}x20"}
                for kind, value in (("used", 8), ("hard", 8))
            ],
            "alert_rule_test": [
                {
                    "eval_time": "6m",
                    "alertname": "GPUQuotaNearLimit",
                    "exp_alerts": [
                        {
                            "exp_labels": {
                                "severity": "warning",
                                "gpucost": "true",
                                "cluster": "c",
                                "namespace": "ml",
                                "resource": "requests.nvidia.com/gpu",
                            },
                            "exp_annotations": {"summary": "GPU quota at 100% of its limit"},
                        }
                    ],
                }
            ],
        }
    )
    for failing, labels in (
        (
            'karpenter_cloudprovider_errors_total{cluster="c",nodepool="gpu",method="Create",error="InsufficientCapacity"}',
            {"error": "InsufficientCapacity"},
        ),
        (
            'karpenter_nodeclaims_terminated_total{cluster="c",nodepool="gpu",reason="ProvisioningFailed"}',
            {"reason": "ProvisioningFailed"},
        ),
    ):
        failed = {"severity": "critical", "gpucost": "true", "cluster": "c", "nodepool": "gpu", **labels}
        alert = {"exp_labels": failed, "exp_annotations": {"summary": "Karpenter could not create a node"}}
        rule = {"eval_time": "5m", "alertname": "KarpenterProvisioningFailed", "exp_alerts": [alert]}
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": failing, "values": "0 0 0 1 1 1"}],
                "alert_rule_test": [rule],
            }
        )
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}))
    done = subprocess.run(
        [find_program("promtool"), "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_sample_notifications_have_every_kind() -> None:
    assert list(SUBJECTS) == list(FIGURES) == list(KINDS_BY_NAME)
