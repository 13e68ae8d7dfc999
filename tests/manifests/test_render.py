"""`gpucost manifests render`: the files agree with the settings, and no value is written twice."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost.settings_document import parse_settings
from gpucost_cli.manifests.gpu_exporters import GPU_EXPORTERS
from gpucost_cli.manifests.parameters import parse_existing_cluster_parameters, parse_parameters
from gpucost_cli.manifests.rendering import render_files, write_files
from gpucost_cli.manifests.targets import TARGETS
from gpucost_cli.manifests.values import template_values
from gpucost_cli.placeholders import refuse_placeholders
from gpucost_devstack.template import REPOSITORY
from tests.gpucost_command import in_this_process
from tests.manifests.rendered import (
    ACCOUNT,
    CLUSTER,
    COLLECTORS,
    OTHER_PARAMETERS,
    OTHER_SETTINGS,
    WORKSPACE,
    configuration,
    documents,
    example_files,
    objects,
    parameters_text,
    render_other,
    settings_text,
)


def render_command(folder: Path, out: Path, settings: str, parameters: str) -> subprocess.CompletedProcess[str]:
    (folder / "settings.yaml").write_text(settings)
    (folder / "parameters.yaml").write_text(parameters)
    command = [str(REPOSITORY / ".venv/bin/gpucost"), "manifests", "render", "--out", str(out)]
    command += ["--settings", str(folder / "settings.yaml"), "--params", str(folder / "parameters.yaml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command_writes_every_file(tmp_path: Path) -> None:
    out = tmp_path / "manifests"
    done = render_command(tmp_path, out, settings_text(), parameters_text())
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"{len(example_files())} files for cluster gpu-cost-poc are in {out}" in done.stderr
    written = {str(path.relative_to(out)): path.read_text() for path in out.rglob("*") if path.is_file()}
    assert written == example_files()


def test_only_earlier_manifests_are_overwritten(tmp_path: Path) -> None:
    values = template_values(parse_settings(OTHER_SETTINGS), parse_parameters(OTHER_PARAMETERS))
    assert write_files(values, tmp_path) == write_files(values, tmp_path)
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(
        InvalidInputError, match=re.escape("contains 'precious.txt', which this command does not write")
    ):
        write_files(values, tmp_path)


def test_files_that_are_no_longer_needed_are_deleted(tmp_path: Path) -> None:
    """Parameters of a role that is no longer in the settings must not be deployed."""
    parameters = parse_parameters(OTHER_PARAMETERS)
    settings_without_role = "\n".join(
        line for line in OTHER_SETTINGS.splitlines() if "role_arn" not in line and "external_id" not in line
    )
    assert "aws/query-role.parameters.json" in write_files(
        template_values(parse_settings(OTHER_SETTINGS), parameters), tmp_path
    )
    kept = write_files(template_values(parse_settings(settings_without_role), parameters), tmp_path)
    existing_files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert existing_files == set(kept)
    assert "aws/query-role.parameters.json" not in existing_files


def test_no_value_of_the_example_is_in_the_files_of_another_cluster() -> None:
    """Every value comes from settings, parameters or versions."""
    text = "\n".join(render_other().values())
    for value in (
        "gpu-cost-poc",
        "us-east-1",
        ACCOUNT,
        WORKSPACE,
        "g4dn.xlarge",
        "bu-a",
        "g5.12xlarge",
        "all-1g.5gb",
        "60s",
        '"1.34"',
    ):
        assert value not in text, value
    for value in (
        "frankfurt",
        "eu-central-1b",
        "999999999999",
        "ws-abc",
        "p5.48xlarge",
        "seeing",
        "g6.xlarge",
        "all-1g.10gb",
        "30s",
        '"1.35"',
        "staging",
    ):
        assert value in text, value
    region = r"\b[a-z]{2}(?:-[a-z]+)?-(?:north|south|east|west|central)[a-z]*-\d"
    assert set(re.findall(region, text)) == {"eu-central-1"}


def test_templates_contain_no_value_of_parameters_or_versions() -> None:
    template_texts = {name: (CLUSTER / name).read_text() for names in TARGETS.values() for name in names}
    template_texts |= {name: (CLUSTER / name).read_text() for name in example_files()}
    versions = yaml.safe_load((CLUSTER / "versions.yaml").read_text())
    configured_values = ["us-east-1", "gpu-cost-poc", "111122223333", ACCOUNT, "g4dn.xlarge", "all-1g.5gb"]
    configured_values += [chart["version"] for chart in versions["charts"].values()] + [
        image["image"] for image in versions["images"].values()
    ]
    for name, text in template_texts.items():
        for value in configured_values:
            assert value not in text, f"{name} contains {value}"


@pytest.mark.parametrize(
    ("signal", "counter"),
    [
        ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE"),
        ("DCGM_FI_PROF_SM_UTIL_RATIO", "DCGM_FI_PROF_SM_ACTIVE"),
        ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL"),
        ("dcgm_fi_prof_gr_engine_active", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
    ],
)
def test_exporters_read_the_signal_of_the_settings(signal: str, counter: str) -> None:
    """In the pinned exporter's spelling: it does not start with a name that it does not know."""
    files = render_other(OTHER_SETTINGS.replace("DCGM_FI_PROF_SM_ACTIVE", signal))
    for name in (exporter.values_file for exporter in GPU_EXPORTERS):
        counters = re.findall(r"^ +(DCGM_\w+), gauge, ", files[name], re.MULTILINE)
        assert counters.count(counter) == 1, name
        assert not [listed for listed in counters if "RATIO" in listed]


def test_counters_have_the_spelling_of_the_pinned_exporter() -> None:
    """Exporter 4.9 renames them, so that a newer version needs other names in `DCGM_COUNTERS`."""
    versions = yaml.safe_load((REPOSITORY / "cluster/versions.yaml").read_text())
    tag = versions["images"]["dcgm_exporter"]["tag"].split("-")[1]
    assert tuple(map(int, tag.split(".")[:2])) <= (4, 8)


def test_every_chart_names_its_repository() -> None:
    charts = yaml.safe_load((CLUSTER / "versions.yaml").read_text())["charts"]
    for name, text in example_files().items():
        for chart in re.findall(r"helm upgrade --install [a-z-]+ ([a-z-]+/[a-z-]+)", text):
            (repository,) = [settings["repository"] for settings in charts.values() if settings["chart"] == chart]
            assert f"# helm repo add {chart.partition('/')[0]} {repository}\n" in text, name


def test_karpenter_uses_private_subnets_only() -> None:
    """eksctl also tags public subnets with the cluster's tag."""
    for _, document in objects(example_files()):
        if document["kind"] == "EC2NodeClass":
            for term in document["spec"]["subnetSelectorTerms"]:
                assert term["tags"] == {
                    "karpenter.sh/discovery": "gpu-cost-poc",
                    "kubernetes.io/role/internal-elb": "1",
                }


def test_pools_with_reserved_capacity_select_reservations() -> None:
    """The capacity type `reserved` selects nothing by itself; the node class selects the reservations."""
    files = [document for name, document in objects(example_files()) if name.startswith("karpenter/")]
    choosing = {
        document["metadata"]["name"] for document in files if document["spec"].get("capacityReservationSelectorTerms")
    }
    taking = {
        document["spec"]["template"]["spec"]["nodeClassRef"]["name"]
        for document in files
        if document["kind"] == "NodePool"
        for requirement in document["spec"]["template"]["spec"]["requirements"]
        if requirement["key"] == "karpenter.sh/capacity-type" and "reserved" in requirement["values"]
    }
    assert choosing == taking == {"gpu-training"}


def test_drivers_of_claimed_volumes_are_installed() -> None:
    (claim,) = [document for _, document in objects(example_files()) if document["kind"] == "PersistentVolumeClaim"]
    assert claim["spec"]["storageClassName"] == "efs-sc"
    (cluster,) = documents(example_files()["eksctl/proof-of-concept.yaml"])
    assert {"name": "aws-efs-csi-driver", "wellKnownPolicies": {"efsCSIController": True}} in cluster["addons"]


def test_every_collector_has_the_same_scrape_configuration() -> None:
    """The OpenTelemetry collector cannot run in tests; its scrape configuration equals that of test_collection."""
    for files in (example_files(), render_other()):
        block = yaml.safe_load(files["collection/scrape-configs.yaml"])["scrape_configs"]
        assert configuration(files, "collection/prometheus-agent.yaml")["scrape_configs"] == block
        assert yaml.safe_load(files["collection/amp-scraper.yaml"])["scrape_configs"] == block
        assert all(job["honor_labels"] for job in block), "labels of workloads take precedence over target labels"
        otel = configuration(files, "collection/otel-collector.yaml")
        assert otel["receivers"]["prometheus"]["config"]["scrape_configs"] == block
        agent, scraper = configuration(files, "collection/prometheus-agent.yaml"), files["collection/amp-scraper.yaml"]
        every = {"scrape_interval": agent["global"]["scrape_interval"], "scrape_timeout": "10s"}
        assert otel["receivers"]["prometheus"]["config"]["global"] == every
        for collector, configured in (("prometheus-agent", agent), ("amp-scraper", yaml.safe_load(scraper))):
            assert configured["global"] == {**every, "external_labels": {"gpucost_collector": collector}}
        exporter = otel["exporters"]["prometheusremotewrite"]
        assert exporter["external_labels"] == {"gpucost_collector": "otel-collector"}
        assert otel["exporters"]["prometheusremotewrite"]["endpoint"] == agent["remote_write"][0]["url"]
        assert otel["extensions"]["sigv4auth"]["region"] == agent["remote_write"][0]["sigv4"]["region"]
        assert "$" not in yaml.safe_dump(block), "the collector would expand it as a variable"
        used = otel["service"]["pipelines"]["metrics"]
        assert all(component in otel[kind] for kind, components in used.items() for component in components)
        assert set(otel["service"]["extensions"]) == set(otel["extensions"])


def test_files_agree_with_the_settings() -> None:
    files = render_other()
    agent = configuration(files, "collection/prometheus-agent.yaml")
    assert agent["remote_write"][0]["url"].startswith(
        "https://aps-workspaces.eu-central-1.amazonaws.com/workspaces/ws-abc/"
    )
    assert agent["remote_write"][0]["sigv4"] == {"region": "eu-central-1"}
    for job in agent["scrape_configs"]:
        added = {rule["target_label"]: rule["replacement"] for rule in job["relabel_configs"] if "replacement" in rule}
        assert added == {"cluster": "fra", "stage": "prod"}, "the selector of the settings matches the written labels"
    lists = yaml.safe_load(files["helm/kube-state-metrics.yaml"])["metricLabelsAllowlist"]
    assert lists[1:] == ["namespaces=[org/unit,resource.kubernetes.io/admin-access]", "pods=[project,squad]"]
    (namespace,) = [
        document
        for _, document in objects(files)
        if document["kind"] == "Namespace" and document["metadata"]["name"] == "seeing"
    ]
    assert namespace["metadata"]["labels"] == {"org/unit": "vision"}
    (tenant,) = [document for name, document in objects(files) if name == "workloads/tenants.yaml"]
    assert tenant["spec"]["template"]["metadata"]["labels"] == {"app": "slices", "squad": "v", "project": "eyes"}
    quota = next(document for _, document in objects(files) if document["kind"] == "ResourceQuota")
    assert quota["spec"]["hard"] == {"requests.nvidia.com/gpu": "9"}
    role = {
        parameter["ParameterKey"]: parameter["ParameterValue"]
        for parameter in json.loads(files["aws/query-role.parameters.json"])
    }
    assert role == {
        "RoleName": "gpucost-query-frankfurt",
        "DeploymentAccountId": "888888888888",
        "DeploymentStackName": "costs",
        "WorkspaceArn": "arn:aws:aps:eu-central-1:999999999999:workspace/ws-abc",
        "ExternalId": "other",
    }
    query = next(document for _, document in objects(files) if document["kind"] == "ScaledObject")["spec"]["triggers"][
        0
    ]["metadata"]
    assert '{cluster="fra",stage="prod",namespace="ml-serving",' in query["query"]


def test_labels_with_special_characters_are_escaped() -> None:
    odd = """it's: "a" #{% b & c"""
    files = render_other(settings=OTHER_SETTINGS.replace("stage: prod", f"stage: {json.dumps(odd)}"))
    block = yaml.safe_load(files["collection/scrape-configs.yaml"])["scrape_configs"]
    for job in block:
        assert [rule["replacement"] for rule in job["relabel_configs"] if rule.get("target_label") == "stage"] == [odd]
    scaled = next(document for _, document in objects(files) if document["kind"] == "ScaledObject")["spec"]["triggers"][
        0
    ]["metadata"]
    assert f"stage={json.dumps(odd)}," in scaled["query"]


def test_operators_and_collectors_run_on_system_nodes() -> None:
    """In both of eksctl's clusters, with other labels, and on any node without labels."""
    for files, labels in ((example_files(), {"workload": "system"}), (render_other(), {"purpose": "tools"})):
        for name in ("eksctl/proof-of-concept.yaml", "eksctl/spot.yaml"):
            (cluster,) = documents(files[name])
            assert any(labels.items() <= group["labels"].items() for group in cluster["managedNodeGroups"]), name
        selectors = [
            yaml.safe_load(files[f"helm/{chart}.yaml"])["nodeSelector"] for chart in ("kube-state-metrics", "keda")
        ]
        selectors.append(yaml.safe_load(files["helm/gpu-operator.yaml"])["operator"]["nodeSelector"])
        collectors = [
            document
            for name, document in objects(files)
            if name in COLLECTORS and "template" in document.get("spec", {})
        ]
        selectors += [document["spec"]["template"]["spec"]["nodeSelector"] for document in collectors]
        assert selectors == [labels] * 5
    anywhere = render_other(parameters=OTHER_PARAMETERS.replace("{purpose: tools}", "{}"))
    assert yaml.safe_load(anywhere["helm/keda.yaml"])["nodeSelector"] == {}


def test_clusters_define_the_roles_of_service_accounts() -> None:
    """Every service account with an AWS role is in eksctl's file."""
    for file, account in (("collection/access.yaml", "amp-ingest"), ("helm/keda.yaml", "keda-operator")):
        (cluster,) = documents(example_files()["eksctl/proof-of-concept.yaml"])
        roles = {
            association["serviceAccountName"]: association["namespace"]
            for association in cluster["iam"]["podIdentityAssociations"]
        }
        assert account in roles
        assert f"name: {account}" in example_files()[file]
    (spot,) = documents(example_files()["eksctl/spot.yaml"])
    assert {association["serviceAccountName"] for association in spot["iam"]["podIdentityAssociations"]} == {
        "cluster-autoscaler",
        "amp-ingest",
    }
    gpus = [group for group in spot["managedNodeGroups"] if group["name"].startswith("gpu-")]
    assert [group["availabilityZones"] for group in gpus] == [["us-east-1a"], ["us-east-1b"], ["us-east-1c"]]
    assert all((group["minSize"], group["desiredCapacity"], group["spot"]) == (0, 0, True) for group in gpus)
    assert set(COLLECTORS) <= set(example_files())


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "cluster: frankfurt",
            "cluster: nowhere",
            "cluster 'nowhere' is not in the settings. Clusters there: elsewhere, frankfurt",
        ),
        ("cluster: frankfurt", "cluster: elsewhere", "the manifests write to Amazon Managed Service for Prometheus"),
        ("eu-central-1b]", "eu-west-1b]", "zone eu-west-1b is not in eu-central-1"),
        ('"999999999999"', '"777777777777"', "is in another account than account_id 777777777777"),
        ("unit: vision", "unit: sound", "business unit 'sound' is not in the settings. Business units there: vision"),
        ("environment:", "enviroment:", "unknown key 'enviroment'"),
        ("30,", "10,", "collection.scrape_interval_seconds"),
        ("all-1g.10gb", "all 1g", "gpu_group.mig_geometry"),
        ("[g5.xlarge, g6.xlarge]", "[g5.xlarge, g5.xlarge]", "'g5.xlarge' is listed twice"),
        ("tenants: [", "tenants: [{namespace: seeing, pods: 1}, ", "namespace 'seeing' is listed twice"),
        ("zones: [", "zones: [[", "not valid YAML"),
    ],
)
def test_invalid_parameters_are_refused(old: str, new: str, says: str) -> None:
    assert old in OTHER_PARAMETERS
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        render_other(parameters=OTHER_PARAMETERS.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("workspaces/ws-abc", "workspaces", "is not the address of an AMP workspace"),
        ("aps-workspaces.eu-central-1", "aps-workspaces.eu-west-1", "its workspace is in eu-west-1"),
        ("stage: prod", "stage: $1", "relabeling cannot write a selector with a dollar sign"),
        ("name: frankfurt", "name: frank.furt", "EKS allows only letters, digits"),
    ],
)
def test_settings_without_possible_manifests_are_refused(old: str, new: str, says: str) -> None:
    parameters = (
        OTHER_PARAMETERS.replace("cluster: frankfurt", "cluster: frank.furt") if "furt" in new else OTHER_PARAMETERS
    )
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        render_other(settings=OTHER_SETTINGS.replace(old, new, 1), parameters=parameters)


EXAMPLE_WORKSPACE = "ws-00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("settings", "parameters", "says"),
    [
        (
            (CLUSTER / "settings.yaml").read_text(),
            parameters_text(),
            f"{{}}settings.yaml: clusters[0].prometheus.url: '{EXAMPLE_WORKSPACE}' in ",
        ),
        (
            settings_text(),
            (CLUSTER / "parameters.yaml").read_text(),
            "{}parameters.yaml: account_id: '111122223333' is an example's placeholder. Replace it with the ID of",
        ),
        (
            settings_text(),
            parameters_text() + "deployment_account_id: '123456789012'\n",
            "{}parameters.yaml: deployment_account_id: '123456789012' is an example's placeholder",
        ),
        (
            settings_text().replace("# role_arn", "role_arn"),
            parameters_text(),
            "{}settings.yaml: clusters[0].prometheus.role_arn: '111122223333' in 'arn:aws:iam::111122223333:role/",
        ),
        (
            settings_text().replace(WORKSPACE, "ws-…"),
            parameters_text(),
            "{}settings.yaml: clusters[0].prometheus.url: 'ws-…' in ",
        ),
        (
            settings_text().replace(WORKSPACE, "<id>"),
            parameters_text(),
            "{}settings.yaml: clusters[0].prometheus.url: '<id>' in ",
        ),
    ],
)
def test_placeholders_of_the_examples_are_refused(tmp_path: Path, settings: str, parameters: str, says: str) -> None:
    done = render_command(tmp_path, tmp_path / "manifests", settings, parameters)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gpucost: {says.format(f'{tmp_path}/')}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "manifests").exists()


@pytest.mark.parametrize("command", [["settings", "push", "{}", "--stack", "s"], ["doctor", "--settings", "{}"]])
def test_placeholders_are_neither_pushed_nor_queried(command: list[str]) -> None:
    result = in_this_process(*(part.format(CLUSTER / "settings.yaml") for part in command))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(
        f"gpucost: {CLUSTER / 'settings.yaml'}: clusters[0].prometheus.url: '{EXAMPLE_WORKSPACE}' in "
    )


def test_unchanged_examples_of_settings_are_refused() -> None:
    """The examples are in docs/how-to/deploy.md and docs/how-to/alerts.md."""
    deploy = re.findall(
        r"^```yaml\n(clusters:.*?)^```", (REPOSITORY / "docs/how-to/deploy.md").read_text(), re.M | re.S
    )
    texts = [text for text in deploy if "aps-workspaces" in text]
    assert texts
    for text in texts:
        with pytest.raises(InvalidInputError, match="is an example's placeholder"):
            refuse_placeholders(parse_settings(text), "settings")
    receiver = 'alerts: {receivers: [{type: alertmanager, name: sre, url: "https://am.example.com"}]}\n'
    with pytest.raises(InvalidInputError, match=re.escape("alerts.receivers[0].url: 'https://am.example.com'")):
        refuse_placeholders(parse_settings(settings_text() + receiver), "settings")


def test_real_values_are_not_placeholders() -> None:
    settings = settings_text().replace("name: bu-a,", 'name: "123456789012 example.com … ws-0",')
    refuse_placeholders(parse_settings(settings), "settings")
    refuse_placeholders(parse_parameters(parameters_text()), "parameters")


def test_account_id_needs_no_quotes() -> None:
    assert parse_existing_cluster_parameters("account_id: 999999999999\n").account_id == "999999999999"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("account_id: …", "account_id: must be the 12 digits of an AWS account in quotes"),
        ("account_id: 12345", "account_id: must be text. Put it in quotes; without them it is the number 12345"),
        ("account_id: 012345670123", "account_id: must be text. Put it in quotes; without them it is the number 14024"),
        ("acount_id: 999999999999", "unknown key 'acount_id'; allowed there: cluster, account_id, "),
        ("system_nodes: [a]", "system_nodes: must be a mapping"),
        (
            "collection: {exporter_namespaces: {karpenter: kube-system}}",
            "collection.exporter_namespaces.karpenter: must be a list",
        ),
        ("collection: {scrape_interval_seconds: 10}", "collection.scrape_interval_seconds: must be greater than or eq"),
        ("deployment_stack: 1.5", "deployment_stack: must be text. Put it in quotes"),
        ("deployment_stack: my_stack", "deployment_stack: must be a stack's name: up to 61 letters, digits and -"),
        ("- account_id", "parameters must be a mapping. Allowed keys: cluster, account_id, "),
        ("account_id: *id", "parameters are not valid YAML or JSON in line 1: found undefined alias"),
    ],
)
def test_invalid_parameters_are_explained_in_terms_of_the_file(text: str, fault: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^(parameters: )?{re.escape(fault)}"):
        parse_existing_cluster_parameters(text)


def test_undefined_template_variable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "collection").mkdir()
    (tmp_path / "collection/scrape-configs.yaml").write_text("scrape_configs: {{ undefined_variable }}\n")
    with pytest.raises(GpuCostError, match="'undefined_variable' is undefined"):
        dict(render_files({}, tmp_path))


def test_files_of_other_commands_are_not_rendered(tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text("{{ define of some other language }}")
    (tmp_path / "collection").mkdir()
    (tmp_path / "collection/scrape-configs.yaml").write_text("scrape_configs: []\n")
    assert dict(render_files({}, tmp_path)) == {"collection/scrape-configs.yaml": "scrape_configs: []\n"}


def test_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "collection").write_text("a file")
    values = template_values(parse_settings(OTHER_SETTINGS), parse_parameters(OTHER_PARAMETERS))
    with pytest.raises(InvalidInputError, match="cannot be written to"):
        write_files(values, tmp_path)


def test_example_settings_select_the_jobs_of_the_collector() -> None:
    (cluster,) = parse_settings((CLUSTER / "settings.yaml").read_text()).clusters
    named = {job for matchers in dict(cluster.sources).values() for job in matchers["job"]}
    scraped = configuration(example_files(), "collection/prometheus-agent.yaml")["scrape_configs"]
    assert named == {scrape_config["job_name"] for scrape_config in scraped}


def test_exporters_are_scraped_in_the_namespaces_of_the_parameters() -> None:
    more = "collection: {exporter_namespaces: {dcgm_exporter: [gpus, gpu-operator]}, "
    files = render_other(parameters=OTHER_PARAMETERS.replace("collection: {", more))
    kept = {
        scrape_config["job_name"]: [
            rule["regex"]
            for rule in scrape_config["relabel_configs"]
            if rule.get("source_labels") == ["__meta_kubernetes_namespace"] and rule["action"] == "keep"
        ]
        for scrape_config in configuration(files, "collection/prometheus-agent.yaml")["scrape_configs"]
    }
    assert kept == {
        "kube-state-metrics": ["kube-system"],
        "dcgm-exporter": ["gpus|gpu-operator"],
        "neuron-monitor": ["neuron-monitor|kube-system"],
        "amd-device-metrics-exporter": ["kube-amd-gpu"],
        "gaudi-metric-exporter": ["monitoring"],
        "xpumd": ["xpumd"],
        "kube-dra-exporter": ["monitoring"],
        "hami-scheduler": ["kube-system"],
        "hami-vgpu-monitor": ["kube-system"],
    }


def test_settings_without_the_job_of_the_collector_are_refused() -> None:
    selector = "    selector: {cluster: fra, stage: prod}"
    settings = OTHER_SETTINGS.replace(selector, f"{selector}\n    sources: {{dcgm_exporter: {{job: [gpus]}}}}")
    with pytest.raises(InvalidInputError, match=re.escape("sources.dcgm_exporter names job gpus, but the")):
        render_other(settings=settings)
    render_other(settings=settings.replace("[gpus]", "[gpus, dcgm-exporter]"))
