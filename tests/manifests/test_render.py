"""`gpucost kit render`: kit and settings agree, and no value is typed twice."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from devstack.template import REPOSITORY
from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost.settings_document import parse_settings
from gpucost_cli.manifests.parameters import parse_parameters
from gpucost_cli.manifests.rendering import render_files, write_files
from gpucost_cli.manifests.values import template_values
from gpucost_cli.placeholders import refuse_placeholders
from tests.manifests.rendered import (
    ACCOUNT,
    CLUSTER,
    COLLECTORS,
    WORKSPACE,
    configuration,
    documents,
    example,
    objects,
    parameters_text,
    settings_text,
)
from tests.system.test_cli import in_this_process

OTHER_SETTINGS = """
clusters:
  - {name: elsewhere, prometheus: {url: "http://127.0.0.1:9090"}}
  - name: frankfurt
    prometheus:
      url: https://aps-workspaces.eu-central-1.amazonaws.com/workspaces/ws-abc
      auth: sigv4
      region: eu-central-1
      role_arn: arn:aws:iam::999999999999:role/gpucost-query-frankfurt
      external_id: other
    selector: {cluster: fra, stage: prod}
pricing: {source: constant, gpu_hourly_usd: 1}
utilization: {signal: DCGM_FI_PROF_SM_ACTIVE}
business_units:
  - {name: vision, namespace_labels: {org/unit: vision}, pod_labels: {squad: v}}
cost_labels: [project]
"""
OTHER_PARAMETERS = """
cluster: frankfurt
account_id: "999999999999"
deployment_account_id: "888888888888"
deployment_stack: costs
kubernetes_version: "1.35"
zones: [eu-central-1a, eu-central-1b]
environment: staging
collection: {scrape_interval_seconds: 30, dashboards: false}
gpu_group: {instance_type: p5.48xlarge, nodes: 2, mig_geometry: all-1g.10gb}
spot_instance_types: [g5.xlarge, g6.xlarge]
system_nodes: {purpose: tools}
tenants: [{namespace: seeing, business_unit: vision, pods: 4, gpu_quota: 9, labels: {project: eyes}}]
"""


@cache
def other(settings: str = OTHER_SETTINGS, parameters: str = OTHER_PARAMETERS) -> dict[str, str]:
    return dict(render_files(template_values(parse_settings(settings), parse_parameters(parameters))))


def render_command(folder: Path, out: Path, settings: str, parameters: str) -> subprocess.CompletedProcess[str]:
    (folder / "settings.yaml").write_text(settings)
    (folder / "parameters.yaml").write_text(parameters)
    command = [str(REPOSITORY / ".venv/bin/gpucost"), "kit", "render", "--out", str(out)]
    command += ["--settings", str(folder / "settings.yaml"), "--params", str(folder / "parameters.yaml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_writes_the_set(tmp_path: Path) -> None:
    out = tmp_path / "kit"
    done = render_command(tmp_path, out, settings_text(), parameters_text())
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"{len(example())} files for cluster gpu-cost-poc are in {out}" in done.stderr
    written = {str(path.relative_to(out)): path.read_text() for path in out.rglob("*") if path.is_file()}
    assert written == example()


def test_a_kit_is_written_over_a_kit_and_over_nothing_else(tmp_path: Path) -> None:
    given = template_values(parse_settings(OTHER_SETTINGS), parse_parameters(OTHER_PARAMETERS))
    assert write_files(given, tmp_path) == write_files(given, tmp_path)
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match=re.escape("holds 'precious.txt', which is no part of a kit")):
        write_files(given, tmp_path)


def test_what_settings_have_no_use_for_any_more_goes(tmp_path: Path) -> None:
    """A role's parameters that stay behind would be deployed."""
    parameters = parse_parameters(OTHER_PARAMETERS)
    without = "\n".join(
        line for line in OTHER_SETTINGS.splitlines() if "role_arn" not in line and "external_id" not in line
    )
    assert "aws/query-role.parameters.json" in write_files(template_values(parse_settings(OTHER_SETTINGS), parameters), tmp_path)
    kept = write_files(template_values(parse_settings(without), parameters), tmp_path)
    there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert there == set(kept)
    assert "aws/query-role.parameters.json" not in there


def test_nothing_of_one_cluster_stays_in_another() -> None:
    """Every value comes from its one place: with other settings and parameters none of the example's is left."""
    text = "\n".join(other().values())
    for value in ("gpu-cost-poc", "us-west-2", ACCOUNT, WORKSPACE, "p4d.24xlarge", "bu-a", "g5.12xlarge",
                  "all-1g.5gb", "60s", '"1.34"'):  # fmt: skip
        assert value not in text, value
    for value in ("frankfurt", "eu-central-1b", "999999999999", "ws-abc", "p5.48xlarge", "seeing", "g6.xlarge",
                  "all-1g.10gb", "30s", '"1.35"', "staging"):  # fmt: skip
        assert value in text, value


def test_no_file_types_what_parameters_or_versions_say() -> None:
    typed = {name: (CLUSTER / name).read_text() for name in example()}
    versions = yaml.safe_load((CLUSTER / "versions.yaml").read_text())
    said = ["us-west-2", "gpu-cost-poc", "111122223333", ACCOUNT, "p4d.24xlarge", "all-1g.5gb"]
    said += [chart["version"] for chart in versions["charts"].values()] + list(versions["images"].values())
    for name, text in typed.items():
        for value in said:
            assert value not in text, f"{name} types {value}"


def test_every_chart_is_installed_from_a_repository_that_its_file_names() -> None:
    charts = yaml.safe_load((CLUSTER / "versions.yaml").read_text())["charts"]
    for name, text in example().items():
        for chart in re.findall(r"helm upgrade --install [a-z-]+ ([a-z-]+/[a-z-]+)", text):
            (repository,) = [one["repository"] for one in charts.values() if one["chart"] == chart]
            assert f"# helm repo add {chart.partition('/')[0]} {repository}\n" in text, name


def test_karpenters_nodes_stay_private() -> None:
    """eksctl gives the cluster's tag to public subnets too."""
    for _, one in objects(example()):
        if one["kind"] == "EC2NodeClass":
            for term in one["spec"]["subnetSelectorTerms"]:
                assert term["tags"] == {
                    "karpenter.sh/discovery": "gpu-cost-poc",
                    "kubernetes.io/role/internal-elb": "1",
                }


def test_pools_that_take_reservations_find_them() -> None:
    """`reserved` among a pool's capacity types selects nothing by itself: the node class says which reservations."""
    files = [one for name, one in objects(example()) if name.startswith("karpenter/")]
    choosing = {one["metadata"]["name"] for one in files if one["spec"].get("capacityReservationSelectorTerms")}
    taking = {
        one["spec"]["template"]["spec"]["nodeClassRef"]["name"]
        for one in files
        if one["kind"] == "NodePool"
        for need in one["spec"]["template"]["spec"]["requirements"]
        if need["key"] == "karpenter.sh/capacity-type" and "reserved" in need["values"]
    }
    assert choosing == taking == {"gpu-training"}


def test_the_drivers_of_the_volumes_that_workloads_claim_are_there() -> None:
    (claim,) = [one for _, one in objects(example()) if one["kind"] == "PersistentVolumeClaim"]
    assert claim["spec"]["storageClassName"] == "efs-sc"
    (cluster,) = documents(example()["eksctl/proof-of-concept.yaml"])
    assert {"name": "aws-efs-csi-driver", "wellKnownPolicies": {"efsCSIController": True}} in cluster["addons"]


def test_one_block_for_every_collector() -> None:
    """The OpenTelemetry collector cannot run here; what it scrapes by is, to the letter, what Prometheus runs in
    test_collection."""
    for files in (example(), other()):
        block = yaml.safe_load(files["collection/scrape-configs.yaml"])["scrape_configs"]
        assert configuration(files, "collection/prometheus-agent.yaml")["scrape_configs"] == block
        assert yaml.safe_load(files["collection/amp-scraper.yaml"])["scrape_configs"] == block
        assert all(job["honor_labels"] for job in block), "a workload's labels win over the scrape's, whoever adds some"
        otel = configuration(files, "collection/otel-collector.yaml")
        assert otel["receivers"]["prometheus"]["config"]["scrape_configs"] == block
        agent, scraper = configuration(files, "collection/prometheus-agent.yaml"), files["collection/amp-scraper.yaml"]
        assert (
            otel["receivers"]["prometheus"]["config"]["global"] == agent["global"] == yaml.safe_load(scraper)["global"]
        )
        assert otel["exporters"]["prometheusremotewrite"]["endpoint"] == agent["remote_write"][0]["url"]
        assert otel["extensions"]["sigv4auth"]["region"] == agent["remote_write"][0]["sigv4"]["region"]
        assert "$" not in yaml.safe_dump(block), "the collector would take it for a variable"
        used = otel["service"]["pipelines"]["metrics"]
        assert all(one in otel[kind] for kind, some in used.items() for one in some)
        assert set(otel["service"]["extensions"]) == set(otel["extensions"])


def test_kit_and_settings_agree() -> None:
    files = other()
    agent = configuration(files, "collection/prometheus-agent.yaml")
    assert agent["remote_write"][0]["url"].startswith(
        "https://aps-workspaces.eu-central-1.amazonaws.com/workspaces/ws-abc/"
    )
    assert agent["remote_write"][0]["sigv4"] == {"region": "eu-central-1"}
    for job in agent["scrape_configs"]:
        added = {one["target_label"]: one["replacement"] for one in job["relabel_configs"] if "replacement" in one}
        assert added == {"cluster": "fra", "stage": "prod"}, "the selector of the settings matches what is written"
    lists = yaml.safe_load(files["helm/kube-state-metrics.yaml"])["metricLabelsAllowlist"]
    assert lists[1:] == ["namespaces=[org/unit]", "pods=[project,squad]"]
    (namespace,) = [
        one for _, one in objects(files) if one["kind"] == "Namespace" and one["metadata"]["name"] == "seeing"
    ]
    assert namespace["metadata"]["labels"] == {"org/unit": "vision"}
    (tenant,) = [one for name, one in objects(files) if name == "workloads/tenants.yaml"]
    assert tenant["spec"]["template"]["metadata"]["labels"] == {"app": "slices", "squad": "v", "project": "eyes"}
    quota = next(one for _, one in objects(files) if one["kind"] == "ResourceQuota")
    assert quota["spec"]["hard"] == {"requests.nvidia.com/gpu": "9"}
    role = {one["ParameterKey"]: one["ParameterValue"] for one in json.loads(files["aws/query-role.parameters.json"])}
    assert role == {
        "RoleName": "gpucost-query-frankfurt",
        "DeploymentAccountId": "888888888888",
        "DeploymentStackName": "costs",
        "WorkspaceArn": "arn:aws:aps:eu-central-1:999999999999:workspace/ws-abc",
        "ExternalId": "other",
    }
    query = next(one for _, one in objects(files) if one["kind"] == "ScaledObject")["spec"]["triggers"][0]["metadata"]
    assert '{cluster="fra",stage="prod",namespace="ml-serving",' in query["query"]


def test_labels_may_hold_anything() -> None:
    odd = """it's: "a" #{% b & c"""
    files = other(settings=OTHER_SETTINGS.replace("stage: prod", f"stage: {json.dumps(odd)}"))
    block = yaml.safe_load(files["collection/scrape-configs.yaml"])["scrape_configs"]
    for job in block:
        assert [one["replacement"] for one in job["relabel_configs"] if one.get("target_label") == "stage"] == [odd]
    scaled = next(one for _, one in objects(files) if one["kind"] == "ScaledObject")["spec"]["triggers"][0]["metadata"]
    assert f"stage={json.dumps(odd)}," in scaled["query"]


def test_operators_and_collectors_find_their_nodes() -> None:
    """In both of eksctl's clusters; with labels of one's own; and anywhere, where there are none."""
    for files, labels in ((example(), {"workload": "system"}), (other(), {"purpose": "tools"})):
        for name in ("eksctl/proof-of-concept.yaml", "eksctl/spot.yaml"):
            (cluster,) = documents(files[name])
            assert any(labels.items() <= group["labels"].items() for group in cluster["managedNodeGroups"]), name
        selectors = [
            yaml.safe_load(files[f"helm/{chart}.yaml"])["nodeSelector"] for chart in ("kube-state-metrics", "keda")
        ]
        selectors.append(yaml.safe_load(files["helm/gpu-operator.yaml"])["operator"]["nodeSelector"])
        collectors = [one for name, one in objects(files) if name in COLLECTORS and "template" in one.get("spec", {})]
        selectors += [one["spec"]["template"]["spec"]["nodeSelector"] for one in collectors]
        assert selectors == [labels] * 5
    anywhere = other(parameters=OTHER_PARAMETERS.replace("{purpose: tools}", "{}"))
    assert yaml.safe_load(anywhere["helm/keda.yaml"])["nodeSelector"] == {}


def test_all_clusters_have_their_service_accounts_roles() -> None:
    """Whoever names an AWS role's service account finds it in eksctl's file."""
    for file, account in (("collection/access.yaml", "amp-ingest"), ("helm/keda.yaml", "keda-operator")):
        (cluster,) = documents(example()["eksctl/proof-of-concept.yaml"])
        roles = {one["serviceAccountName"]: one["namespace"] for one in cluster["iam"]["podIdentityAssociations"]}
        assert account in roles
        assert f"name: {account}" in example()[file]
    (spot,) = documents(example()["eksctl/spot.yaml"])
    assert {one["serviceAccountName"] for one in spot["iam"]["podIdentityAssociations"]} == {
        "cluster-autoscaler",
        "amp-ingest",
    }
    gpus = [group for group in spot["managedNodeGroups"] if group["name"].startswith("gpu-")]
    assert [group["availabilityZones"] for group in gpus] == [["us-west-2a"], ["us-west-2b"], ["us-west-2c"]]
    assert all((group["minSize"], group["desiredCapacity"], group["spot"]) == (0, 0, True) for group in gpus)
    assert set(COLLECTORS) <= set(example())


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("cluster: frankfurt", "cluster: nowhere", "cluster 'nowhere' is none of the settings' (elsewhere, frankfurt)"),
        ("cluster: frankfurt", "cluster: elsewhere", "the kit writes to Amazon Managed Service for Prometheus"),
        ("eu-central-1b]", "eu-west-1b]", "zone eu-west-1b is not in eu-central-1"),
        ('"999999999999"', '"777777777777"', "is of another account than account_id 777777777777"),
        ("unit: vision", "unit: sound", "business unit 'sound' is none of the settings' (vision)"),
        ("environment:", "enviroment:", "enviroment: unknown key"),
        ("30,", "10,", "collection.scrape_interval_seconds"),
        ("all-1g.10gb", "all 1g", "gpu_group.mig_geometry"),
        ("[g5.xlarge, g6.xlarge]", "[g5.xlarge, g5.xlarge]", "names one twice"),
        ("tenants: [", "tenants: [{namespace: seeing, pods: 1}, ", "a namespace stands twice"),
        ("zones: [", "zones: [[", "not valid YAML"),
    ],
)
def test_what_does_not_fit_is_said(old: str, new: str, says: str) -> None:
    assert old in OTHER_PARAMETERS
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        other(parameters=OTHER_PARAMETERS.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("workspaces/ws-abc", "workspaces", "is not the address of a workspace"),
        ("aps-workspaces.eu-central-1", "aps-workspaces.eu-west-1", "its workspace is in eu-west-1"),
        ("stage: prod", "stage: $1", "a selector with a dollar sign"),
        ("name: frankfurt", "name: frank.furt", "EKS takes letters, digits"),
    ],
)
def test_settings_that_no_kit_can_be_made_of(old: str, new: str, says: str) -> None:
    parameters = (
        OTHER_PARAMETERS.replace("cluster: frankfurt", "cluster: frank.furt") if "furt" in new else OTHER_PARAMETERS
    )
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        other(settings=OTHER_SETTINGS.replace(old, new, 1), parameters=parameters)


EXAMPLE_WORKSPACE = "ws-00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("settings", "parameters", "says"),
    [
        ((CLUSTER / "settings.yaml").read_text(), parameters_text(),
         f"settings: clusters[0].prometheus.url: '{EXAMPLE_WORKSPACE}' in "),
        (settings_text(), (CLUSTER / "parameters.yaml").read_text(),
         "parameters: account_id: '111122223333' is an example's placeholder. Put in the ID of your own AWS account"),
        (settings_text(), parameters_text() + "deployment_account_id: '123456789012'\n",
         "parameters: deployment_account_id: '123456789012' is an example's placeholder"),
        (settings_text().replace("# role_arn", "role_arn"), parameters_text(),
         "settings: clusters[0].prometheus.role_arn: '111122223333' in 'arn:aws:iam::111122223333:role/"),
        (settings_text().replace(WORKSPACE, "ws-…"), parameters_text(),
         "settings: clusters[0].prometheus.url: 'ws-…' in "),
        (settings_text().replace(WORKSPACE, "<id>"), parameters_text(),
         "settings: clusters[0].prometheus.url: '<id>' in "),
    ],
)  # fmt: skip
def test_placeholders_of_the_examples_are_refused(tmp_path: Path, settings: str, parameters: str, says: str) -> None:
    done = render_command(tmp_path, tmp_path / "kit", settings, parameters)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gpucost: {says}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "kit").exists()


@pytest.mark.parametrize("command", [["settings", "push", "{}", "--stack", "s"], ["doctor", "--settings", "{}"]])
def test_placeholders_are_neither_pushed_nor_asked(command: list[str]) -> None:
    said = in_this_process(*(part.format(CLUSTER / "settings.yaml") for part in command))
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith(f"gpucost: settings: clusters[0].prometheus.url: '{EXAMPLE_WORKSPACE}' in ")


def test_every_example_of_settings_that_is_copied_unchanged_is_refused() -> None:
    """The README's, and the receiver of docs/alerts.md."""
    readme = re.findall(r"^```yaml\n(clusters:.*?)^```", (REPOSITORY / "README.md").read_text(), re.M | re.S)
    texts = [text for text in readme if "aps-workspaces" in text]
    assert texts
    for text in texts:
        with pytest.raises(InvalidInputError, match="is an example's placeholder"):
            refuse_placeholders(parse_settings(text), "settings")
    receiver = 'alerts: {receivers: [{type: alertmanager, name: sre, url: "https://am.example.com"}]}\n'
    with pytest.raises(InvalidInputError, match=re.escape("alerts.receivers[0].url: 'https://am.example.com'")):
        refuse_placeholders(parse_settings(settings_text() + receiver), "settings")


def test_values_of_ones_own_are_no_placeholders() -> None:
    settings = settings_text().replace("name: bu-a,", 'name: "123456789012 example.com … ws-0",')
    refuse_placeholders(parse_settings(settings), "settings")
    refuse_placeholders(parse_parameters(parameters_text()), "parameters")


def test_a_template_that_names_no_value_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "collection").mkdir()
    (tmp_path / "collection/scrape-configs.yaml").write_text("scrape_configs: {{ nobody }}\n")
    with pytest.raises(GpuCostError, match="'nobody' is undefined"):
        dict(render_files({}, tmp_path))


def test_what_other_commands_use_is_no_part_of_the_kit(tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text("{{ define of some other language }}")
    (tmp_path / "collection").mkdir()
    (tmp_path / "collection/scrape-configs.yaml").write_text("scrape_configs: []\n")
    assert dict(render_files({}, tmp_path)) == {"collection/scrape-configs.yaml": "scrape_configs: []\n"}


def test_an_out_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "collection").write_text("a file")
    given = template_values(parse_settings(OTHER_SETTINGS), parse_parameters(OTHER_PARAMETERS))
    with pytest.raises(InvalidInputError, match="cannot be written to"):
        write_files(given, tmp_path)


def test_example_settings_read_the_jobs_that_the_collector_scrapes() -> None:
    (cluster,) = parse_settings((CLUSTER / "settings.yaml").read_text()).clusters
    named = {job for matchers in dict(cluster.sources).values() for job in matchers["job"]}
    scraped = configuration(example(), "collection/prometheus-agent.yaml")["scrape_configs"]
    assert named == {one["job_name"] for one in scraped}


def test_exporters_are_scraped_in_the_namespaces_of_the_parameters() -> None:
    more = "collection: {exporter_namespaces: {dcgm_exporter: [gpus, gpu-operator]}, "
    files = other(parameters=OTHER_PARAMETERS.replace("collection: {", more))
    kept = {
        one["job_name"]: [
            rule["regex"] for rule in one["relabel_configs"]
            if rule.get("source_labels") == ["__meta_kubernetes_namespace"] and rule["action"] == "keep"
        ]
        for one in configuration(files, "collection/prometheus-agent.yaml")["scrape_configs"]
    }  # fmt: skip
    assert kept == {
        "kube-state-metrics": ["kube-system"],
        "dcgm-exporter": ["gpus|gpu-operator"],
        "neuron-monitor": ["neuron-monitor|kube-system"],
    }


def test_settings_that_trust_other_jobs_than_the_collectors_are_refused() -> None:
    selector = "    selector: {cluster: fra, stage: prod}"
    settings = OTHER_SETTINGS.replace(selector, f"{selector}\n    sources: {{dcgm_exporter: {{job: [gpus]}}}}")
    with pytest.raises(InvalidInputError, match=re.escape("sources.dcgm_exporter names job gpus, and the kit's")):
        other(settings=settings)
    other(settings=settings.replace("[gpus]", "[gpus, dcgm-exporter]"))
