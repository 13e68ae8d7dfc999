"""The archive of a release: `sam deploy` takes it in any region without building."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from samtranslator.yaml_helper import yaml_parse

from gpucost_devstack.artefacts import sam_build
from gpucost_devstack.aws import local_client, running_aws
from gpucost_devstack.template import REGION, REPOSITORY
from scripts.notices import layer_environment, page_packages
from scripts.release import DOCUMENTS, bill_of_materials, write_archive
from tests.other_python import environment_without_lambdas_python

NAME = "gpucost-1.2.3-sam"
LEVEL = 1
"""Of compression, which takes a third of the processor time that a release's takes, and differs in size only."""
LOCAL_PATHS = {"CodeUri", "ContentUri", "TemplateURL", "Location", "DefinitionUri", "LicenseUrl", "ReadmeUrl"}
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()) or ""))
"""


@pytest.fixture(scope="module")
def archive(new_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / f"{NAME}.zip"
    write_archive(new_build, REPOSITORY, path, level=LEVEL)
    return path


@pytest.fixture(scope="module")
def unzipped(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unzipped")
    with zipfile.ZipFile(archive) as source:
        source.extractall(folder)
    assert [path.name for path in folder.iterdir()] == [NAME]
    return folder / NAME


def test_every_local_path_is_in_the_archive(unzipped: Path) -> None:
    checked = dict(local_paths(unzipped / "template.yaml"))
    for name, path in checked.items():
        assert path.exists(), name
        assert path.resolve().is_relative_to(unzipped.resolve()), name
    source = yaml_parse((REPOSITORY / "template.yaml").read_text())["Resources"]
    uploaded = {name for name, body in source.items() if LOCAL_PATHS & body.get("Properties", {}).keys()}
    assert len(uploaded) >= 13
    assert checked.keys() == uploaded | {"LicenseUrl", "ReadmeUrl"}


def local_paths(template: Path) -> Iterator[tuple[str, Path]]:
    """(resource or metadata key, path) of what SAM uploads; nested templates have nothing to upload."""
    document = yaml_parse(template.read_text())
    for name, body in document["Resources"].items():
        for key in LOCAL_PATHS & body.get("Properties", {}).keys():
            yield name, template.parent / body["Properties"][key]
    for key in LOCAL_PATHS & document.get("Metadata", {}).get("AWS::ServerlessRepo::Application", {}).keys():
        yield key, template.parent / document["Metadata"]["AWS::ServerlessRepo::Application"][key]


def test_archive_names_no_region_account_or_machine(unzipped: Path) -> None:
    text = (unzipped / "template.yaml").read_text()
    for name in (str(REPOSITORY), ".aws-sam", "../"):
        assert name not in text
    assert not re.findall(r"(?:Uri|URL|Url|Location): (?:s3|https)://", text), "nothing is uploaded yet"
    assert not re.findall(r"\b(?:us|eu|ap)-[a-z]+-\d\b|\b\d{12}\b", text)
    assert not [path for path in unzipped.rglob("*") if path.is_symlink()]


def test_archive_has_the_license_and_the_page(unzipped: Path) -> None:
    for name in DOCUMENTS:
        assert (unzipped / name).read_bytes() == (REPOSITORY / name).read_bytes()
    assert (unzipped / "ApiFunction" / "page" / "index.html").is_file()
    assert (unzipped / "CommonLayer" / "python" / "gpucost" / "__init__.py").is_file()


def test_builds_of_two_pythons_are_byte_equal(archive: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    again = tmp_path / f"{NAME}.zip"
    built = sam_build(tmp_path, environment_without_lambdas_python(tools))
    write_archive(built, REPOSITORY, again, level=LEVEL)
    assert again.read_bytes() == archive.read_bytes(), differing_files(archive, again)


def test_layers_contain_bytecode_of_each_module(unzipped: Path) -> None:
    for name in ("CommonLayer", "DependenciesLayer", "DuckDbLayer"):
        compiled = list((unzipped / name).rglob("*.pyc"))
        assert len(compiled) == len(list((unzipped / name).rglob("*.py"))) > 10, name
        assert {path.read_bytes()[:4] for path in compiled} == {importlib.util.MAGIC_NUMBER}, name


def differing_files(left: Path, right: Path) -> list[str]:
    digests = []
    for path in (left, right):
        with zipfile.ZipFile(path) as source:
            digests.append({name: hashlib.sha256(source.read(name)).hexdigest() for name in source.namelist()})
    return sorted(name for name, _ in digests[0].items() ^ digests[1].items())


def test_times_and_permissions_of_the_build_do_not_matter(tmp_path: Path) -> None:
    built = tmp_path / "built"
    (built / "Function").mkdir(parents=True)
    (built / "template.yaml").write_text("Resources: {}\n")
    path = built / "Function" / "app.py"
    path.write_text("pass\n")
    digests = []
    for mode, time in ((0o644, 1_700_000_000), (0o600, 1_800_000_000)):
        path.chmod(mode)
        os.utime(path, (time, time))
        write_archive(built, REPOSITORY, tmp_path / f"{NAME}.zip")
        digests.append(hashlib.sha256((tmp_path / f"{NAME}.zip").read_bytes()).digest())
    assert digests[0] == digests[1]
    path.write_text("pass  # another\n")
    write_archive(built, REPOSITORY, tmp_path / f"{NAME}.zip")
    assert hashlib.sha256((tmp_path / f"{NAME}.zip").read_bytes()).digest() != digests[0]


@pytest.mark.parametrize("region", [pytest.param("eu-central-1", marks=pytest.mark.nightly), "us-gov-west-1"])
def test_sam_packages_the_archive(unzipped: Path, tmp_path: Path, region: str) -> None:
    """`sam deploy` packages first: SAM uploads every folder, here to moto, and writes the template to deploy."""
    folder = tmp_path / "elsewhere"
    shutil.copytree(unzipped, folder)
    with running_aws() as endpoint:
        bucket = local_client("s3", endpoint)
        bucket.create_bucket(Bucket="artifacts", CreateBucketConfiguration={"LocationConstraint": REGION})
        done = subprocess.run(
            [
                REPOSITORY / ".tools/sam/bin/sam",
                "package",
                "--template-file",
                "template.yaml",
                "--s3-bucket",
                "artifacts",
                "--region",
                region,
                "--output-template-file",
                tmp_path / "packaged.yaml",
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "SAM_CLI_TELEMETRY": "0",
                "HOME": str(tmp_path),
            },
        )
        assert done.returncode == 0, done.stderr[-2000:]
        packaged = yaml_parse((tmp_path / "packaged.yaml").read_text())
        uris = [uri for body in packaged["Resources"].values() for uri in uploaded_uris(body.get("Properties", {}))]
        metadata = packaged["Metadata"]["AWS::ServerlessRepo::Application"]
        uris += [metadata["LicenseUrl"], metadata["ReadmeUrl"]]
        keys = {entry["Key"] for entry in bucket.list_objects_v2(Bucket="artifacts")["Contents"]}
    assert len(uris) == len(dict(local_paths(folder / "template.yaml")))
    assert {urlsplit(uri).path.rpartition("/")[2] for uri in uris} <= keys


def uploaded_uris(properties: dict[str, Any]) -> Iterator[str]:
    for key in LOCAL_PATHS & properties.keys():
        assert re.match(r"(s3|https?)://", properties[key]), f"{properties[key]} is not uploaded"
        yield properties[key]


def test_bill_of_materials_lists_the_layers_and_the_page(tmp_path: Path) -> None:
    page = page_packages()
    layer_environment(tmp_path / "first")
    document = bill_of_materials(tmp_path / "first" / "bin" / "python", page, REPOSITORY / "pyproject.toml")
    (tmp_path / "first").rename(tmp_path / "second")
    again = bill_of_materials(tmp_path / "second" / "bin" / "python", page, REPOSITORY / "pyproject.toml")
    assert document == again, "the document must not depend on the time or the folder"
    main = document["metadata"]["component"]
    assert (main["name"], main["licenses"][0]["license"]["id"]) == ("gpucost", "Apache-2.0")
    purls = {component["purl"] for component in document["components"]}
    for lock in ("deps", "duckdb"):
        for line in (REPOSITORY / "layers" / lock / "requirements.txt").read_text().splitlines():
            name, separator, version = line.removesuffix(" \\").partition("==")
            if separator:
                assert f"pkg:pypi/{name.lower().replace('_', '-')}@{version}" in purls
    assert {f"pkg:npm/{package.name}@{package.version}" for package in page} <= purls
    assert all(component.get("licenses") for component in document["components"])
    assert not schema_error(document)
    document["components"].append({"name": "without a type"})
    assert "type" in schema_error(document), "the validator must be able to fail"


def schema_error(document: dict[str, Any]) -> str:
    """What CycloneDX's validator reports."""
    python = REPOSITORY / ".tools" / "release" / "bin" / "python"
    completed = subprocess.run(
        [python, "-c", VALIDATE], input=json.dumps(document), capture_output=True, text=True, check=False
    )
    assert completed.returncode in (0, 1)
    return completed.stderr.strip()


def test_metadata_fits_the_serverless_application_repository() -> None:
    """The limits are those of AWS's page on the metadata section."""
    template = yaml_parse((REPOSITORY / "template.yaml").read_text())
    metadata = template["Metadata"]["AWS::ServerlessRepo::Application"]
    assert re.fullmatch(r"[a-zA-Z0-9-]{1,140}", metadata["Name"])
    assert re.fullmatch(r"[a-z0-9](([a-z0-9]|-(?!-))*[a-z0-9])?", metadata["Author"])
    assert 1 <= len(metadata["Description"]) <= 256
    assert len(metadata["Labels"]) <= 10
    assert all(re.fullmatch(r"[a-zA-Z0-9+_:/@-]{1,127}", label) for label in metadata["Labels"])
    assert metadata["SpdxLicenseId"] == "Apache-2.0"
    assert not {"HomePageUrl", "SourceCodeUrl"} & metadata.keys(), "no address of the project is public yet"
