"""Files, commands and checks that the pages about the manifests name exist."""

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml

from gpucost.core.metering.fraction_schedulers import HAMI
from gpucost.core.pricing.list_price_table import HOURLY_PRICES
from gpucost.settings_document import parse_settings
from gpucost_cli.doctor.checks import CHECKS
from gpucost_cli.doctor.checks.allocation_metrics import KUBE_METRICS
from gpucost_cli.manifests.parameters import parse_existing_cluster_parameters
from gpucost_cli.manifests.targets import TARGETS
from gpucost_cli.manifests.values import existing_cluster_values
from gpucost_devstack.template import REPOSITORY
from tests.manifests.rendered import CLUSTER, documents, example_files, target_files

DOCS = REPOSITORY / "docs"
TARGET_OF_PAGE = {
    "kube-prometheus-stack": "kube-prometheus-stack",
    "amp-scraper": "amp-scraper",
    "prometheus": "prometheus",
    "opentelemetry": "otel-collector",
    "other-servers": "other-servers",
}
"""The pages about existing clusters, with their value of `--for`."""
PAGES = (
    "tutorials/quickstart-eks.md",
    "how-to/existing-cluster.md",
    "explanation/comparison.md",
    "decisions/0036-cluster-manifests.md",
    *(f"how-to/clusters/{name}.md" for name in TARGET_OF_PAGE),
)
FOLDERS = "eksctl|karpenter|helm|collection|workloads|aws"


def page(name: str) -> str:
    return (DOCS / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_named_files_exist(name: str) -> None:
    for pattern in re.findall(
        rf"(?<![\w/-])(?:manifests/|cluster/)?((?:{FOLDERS})/[a-z0-9/*-]+\.(?:yaml|json))", page(name)
    ):
        paths = {
            *example_files(),
            "aws/query-role.parameters.json",
            *(path for paths in TARGETS.values() for path in paths),
        }
        assert any(fnmatchcase(path, pattern) for path in paths), pattern
    for pattern in re.findall(r"`((?:tests|gpucost_devstack|docs|gpucost|gpucost_cli)/[a-z_/.]+\.py)`", page(name)):
        assert (REPOSITORY / "layers/common" / pattern).exists() or (REPOSITORY / pattern).exists(), pattern


@pytest.mark.parametrize("name", PAGES)
def test_links_have_targets(name: str) -> None:
    for target, anchor in re.findall(r"\]\(((?!https:)[^)#]*)#?([^)]*)\)", page(name)):
        path = ((DOCS / name).parent / target).resolve() if target else DOCS / name
        assert path.exists(), target
        if anchor:
            assert anchor in set(_anchors(path)), f"{target}#{anchor}"


def _anchors(path: Path) -> Iterator[str]:
    for heading in re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE):
        yield re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def test_quick_start_shows_the_output_of_its_commands() -> None:
    text = page("tutorials/quickstart-eks.md")
    assert f"`{len(example_files())} files for cluster gpu-cost-poc are in manifests`" in text
    exported = dict(re.findall(r'^export (\w+)="(.*)"$', example_files()["env.sh"], re.MULTILINE))
    for command in re.findall(
        r"^```sh\n(.*?)^```", text + page("how-to/existing-cluster.md"), re.MULTILINE | re.DOTALL
    ):
        for variable in re.findall(r"\$\{?([A-Z_]{4,})", command):
            assert variable in exported, f"${variable} is set by env.sh"
    versions = yaml.safe_load((CLUSTER / "versions.yaml").read_text())["charts"]
    for name in ("gpu_operator", "kube_state_metrics"):
        assert f"helm repo add {versions[name]['chart'].split('/')[0]} {versions[name]['repository']}" in text
        assert f"{versions[name]['chart']} " in text
    for file in re.findall(r"-f ([a-z/-]+\.yaml)", text):
        assert file.removeprefix("manifests/") in example_files(), file


def blocks(name: str, language: str = "sh") -> list[str]:
    """The code blocks of a page in a language."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
    return [content for fence_language, content in fences if fence_language == language]


@pytest.mark.parametrize(("name", "target"), TARGET_OF_PAGE.items())
def test_pages_of_existing_clusters_name_rendered_files_and_variables(name: str, target: str) -> None:
    text, files = page(f"how-to/clusters/{name}.md"), target_files(target)
    assert f"gpucost manifests render --for {target} --settings settings.yaml " in text
    assert f"`{len(files)} files for cluster prod-eu are in manifests`" in text
    exported = dict(re.findall(r'^export (\w+)="(.*)"$', files["env.sh"], re.MULTILINE))
    for command in blocks(f"how-to/clusters/{name}.md"):
        for file in re.findall(
            r"(?:-f |file://|--template-file |base64 -w0 |p' )(?:manifests/)?([a-z]+/[a-z.-]+)", command
        ):
            assert file in files, file
        for variable in re.findall(r"\$\{?([A-Z_]{4,})", command):
            assert variable in exported or re.search(rf"^{variable}=", command, re.MULTILINE), variable
    versions = yaml.safe_load((CLUSTER / "versions.yaml").read_text())["charts"]
    for alias, address in re.findall(r"helm repo add (\S+) (\S+)", text):
        assert address in {chart.get("repository") for chart in versions.values() if chart["chart"].startswith(alias)}
    for heading in ("## 1. ", "first costed hour\n", "## Take it away again\n"):
        assert heading in text
    assert text.count("gpucost doctor --settings settings.yaml") >= 2, "before and after the cluster is changed"


@pytest.mark.parametrize(("name", "target"), TARGET_OF_PAGE.items())
def test_settings_and_parameters_of_the_pages_are_valid(name: str, target: str) -> None:
    """Other snippets are parameters. Prices are left out on purpose; a page about prices has them."""
    seen = set()
    for block in blocks(f"how-to/clusters/{name}.md", "yaml"):
        document = yaml.safe_load(block)
        seen.add("clusters" in document)
        if "clusters" in document:
            real = block.replace("ws-…", "ws-1").replace("example.net", "corp.test")  # placeholders are refused
            settings = parse_settings(real)
            assert "pricing" not in document
            assert [cluster.name for cluster in settings.clusters] == ["prod-eu"]
            existing_cluster_values(settings, parse_existing_cluster_parameters('account_id: "210987654321"'), target)
        else:
            parse_existing_cluster_parameters(block.replace('"…"', '"210987654321"'))
    assert seen == {True, False}


def test_scrape_configuration_becomes_a_value_of_the_prometheus_chart(tmp_path: Path) -> None:
    """The commands of step 4 of clusters/prometheus.md write the jobs as text."""
    (script,) = [block for block in blocks("how-to/clusters/prometheus.md") if "extraScrapeConfigs: |" in block]
    (tmp_path / "manifests/collection").mkdir(parents=True)
    text = target_files("prometheus")["collection/scrape-configs.yaml"]
    (tmp_path / "manifests/collection/scrape-configs.yaml").write_text(text)
    commands = [line for line in script.splitlines() if line.startswith(("printf", "sed"))]
    subprocess.run(["bash", "-ec", "\n".join(commands)], cwd=tmp_path / "manifests", check=True)
    values = yaml.safe_load((tmp_path / "scrape-values.yaml").read_text())
    assert yaml.safe_load(values["extraScrapeConfigs"]) == yaml.safe_load(text)["scrape_configs"]


def test_prices_of_the_quick_start_are_the_list_prices() -> None:
    text = page("tutorials/quickstart-eks.md")
    price = HOURLY_PRICES["us-east-1"]["g4dn.xlarge"]
    assert f"A g4dn.xlarge costs ${price} an hour, and two m7i.large cost $0.2016." in text
    assert "$0.73 an hour" in text
    assert round(float(price) + 0.2016, 2) == 0.73
    assert "Karpenter's price table" in text


def test_clusters_are_created_without_a_second_device_plugin() -> None:
    """eksctl installs one for GPU groups with AL2023 unless a flag forbids it; its configuration file cannot."""
    texts = [
        page("tutorials/quickstart-eks.md"),
        *(text for name, text in example_files().items() if name.startswith("eksctl/")),
    ]
    for text in texts:
        commands = re.findall(r"eksctl create cluster -f .*", text)
        assert commands
        assert all(command.endswith(" --install-nvidia-plugin=false") for command in commands), commands


def test_every_check_of_the_doctor_is_documented() -> None:
    """In its own rows of reference/doctor.md, or in the tutorial."""
    rows = page("tutorials/quickstart-eks.md").partition("## Findings of the doctor")[2].splitlines()[6:]
    cells = [row.split("|")[1] for row in rows if row.startswith("|")]
    for check in CHECKS:
        assert check.rows or check.section == "kube-state-metrics"
        for row in check.rows.strip().splitlines():
            name, meaning, change = row.split(" | ")
            assert f"\n| {name} | {meaning} | {change} |\n" in page("reference/doctor.md")
            cells.append(name)
    patterns = [name.partition(" (")[0].strip().replace("…", "*") for cell in cells for name in cell.split(",")]
    sources = "\n".join(path.read_text() for path in (REPOSITORY / "gpucost_cli/doctor").rglob("*.py"))
    names = set(re.findall(r'(?:context\.check|\bCheck)\(\s*f?"([^"]+)"', sources)) | set(KUBE_METRICS)
    names |= {"node label x", "namespace label x", "pod label x", "kube-state-metrics", "kube-state-metrics now"}
    assert len(names) > 40
    for name in names:
        filled = (
            name.replace("{KUBE_STATE_METRICS}", "kube-state-metrics")
            .replace("pods of {name}", "pods of nvidia.com/gpu.shared")
            .replace("{scheduler.name}", HAMI.name)
        )
        example_of = re.sub(r"\{.*?\}", "x", filled)
        assert any(fnmatchcase(example_of, pattern) for pattern in patterns), f"{name} has no row"


def test_names_in_the_quick_start_are_those_of_the_parameters() -> None:
    """The page shows the example's cluster. Commands use variables, so they work for other clusters."""
    text = page("tutorials/quickstart-eks.md")
    parameters = yaml.safe_load((CLUSTER / "parameters.yaml").read_text())
    assert f"`{parameters['cluster']}: attribution is possible`" in text
    group = parameters["gpu_group"]
    assert f"A {group['instance_type']} costs" in text
    assert f"Tesla-T4-SHARED   {group['time_slicing_replicas']}   time-slicing" in text
    assert sum(tenant["pods"] for tenant in parameters["tenants"]) == group["time_slicing_replicas"]
    assert documents(example_files()["helm/gpu-operator-time-slicing.yaml"])
    assert f"replicas: {group['time_slicing_replicas']}\n" in example_files()["helm/gpu-operator-time-slicing.yaml"]
