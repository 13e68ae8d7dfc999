"""Files, commands and checks that the pages about the manifests name exist."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml

from gpucost_cli.doctor.checks.allocation_metrics import KUBE_METRICS
from gpucost_devstack.template import REPOSITORY
from tests.manifests.rendered import CLUSTER, example_files

DOCS = REPOSITORY / "docs"
PAGES = (
    "tutorials/quickstart-eks.md",
    "how-to/existing-cluster.md",
    "explanation/seeds.md",
    "decisions/0036-cluster-manifests.md",
)
FOLDERS = "eksctl|karpenter|helm|collection|workloads|aws"


def page(name: str) -> str:
    return (DOCS / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_named_files_exist(name: str) -> None:
    for pattern in re.findall(
        rf"(?<![\w/-])(?:manifests/|cluster/)?((?:{FOLDERS})/[a-z0-9/*-]+\.(?:yaml|json))", page(name)
    ):
        assert any(fnmatchcase(path, pattern) for path in (*example_files(), "aws/query-role.parameters.json")), pattern
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
    for command in re.findall(r"^```\n(.*?)^```", text + page("how-to/existing-cluster.md"), re.MULTILINE | re.DOTALL):
        for variable in re.findall(r"\$\{?([A-Z_]{4,})", command):
            assert variable in exported, f"${variable} is set by env.sh"
    versions = yaml.safe_load((CLUSTER / "versions.yaml").read_text())["charts"]
    for name in ("gpu_operator", "kube_state_metrics"):
        assert f"helm repo add {versions[name]['chart'].split('/')[0]} {versions[name]['repository']}" in text
        assert f"{versions[name]['chart']} " in text
    for file in re.findall(r"-f ([a-z/-]+\.yaml)", text):
        assert file.removeprefix("manifests/") in example_files(), file


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
    rows = page("tutorials/quickstart-eks.md").partition("## Findings of the doctor")[2].splitlines()
    patterns = [
        name.strip().replace("…", "*") for row in rows[6:] for name in row.split("|")[1:2] for name in name.split(",")
    ]
    sources = "\n".join(path.read_text() for path in (REPOSITORY / "gpucost_cli/doctor").rglob("*.py"))
    names = set(re.findall(r'(?:context\.check|\bCheck)\(\s*f?"([^"]+)"', sources)) | set(KUBE_METRICS)
    names |= {"node label x", "namespace label x", "pod label x", "kube-state-metrics", "kube-state-metrics now"}
    assert len(names) > 40
    for name in names:
        filled = name.replace("{_KUBE_STATE_METRICS}", "kube-state-metrics").replace(
            "pods of {name}", "pods of nvidia.com/gpu.shared"
        )
        example_of = re.sub(r"\{.*?\}", "x", filled)
        assert any(fnmatchcase(example_of, pattern) for pattern in patterns), f"{name} has no row"


def test_names_in_the_quick_start_are_those_of_the_parameters() -> None:
    """The page shows the example's cluster. Commands use variables, so they work for other clusters."""
    text = page("tutorials/quickstart-eks.md")
    parameters = yaml.safe_load((CLUSTER / "parameters.yaml").read_text())
    assert f"`{parameters['cluster']}: attribution is possible`" in text
    assert parameters["gpu_group"]["mig_geometry"] in text
    assert (
        f"**{parameters['gpu_group']['instance_type']}" in text
        or f"a {parameters['gpu_group']['instance_type']}" in text
    )


def test_every_part_of_the_articles_is_documented() -> None:
    """docs/explanation/seeds.md has a row for each numbered part of the articles."""
    text = page("explanation/seeds.md")
    parts = re.split(r"^## \d\. .*$", text, flags=re.MULTILINE)[1:]
    wanted = (
        [f"Step {i}" for i in range(1, 11)] + [f"Query {i}" for i in range(1, 6)],
        ["2.1", "2.2", "3.1", "3.2"],
        [f"{i} " for i in range(1, 14)],
        ["1.1", "1.2", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "4.1", "4.2", "4.3", "5.1", "5.2", "5.3", "6.1", "6.2",
         "8.1", "8.2"],
    )  # fmt: skip
    assert len(parts) == len(wanted)
    for part, names in zip(parts, wanted, strict=True):
        firsts = [row.split("|")[1].strip() for row in part.splitlines() if row.startswith("| ")]
        for name in names:
            assert any(first.startswith(name) for first in firsts), name
        assert all(row.count("|") - row.count("\\|") == 4 for row in part.splitlines() if row.startswith("|"))
