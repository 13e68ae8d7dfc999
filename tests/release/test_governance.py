"""License, issue forms, code owners and Dependabot fit the repository."""

import subprocess
import tomllib
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpucost_devstack.template import REPOSITORY

GITHUB = REPOSITORY / ".github"
FORMS = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return listed.stdout.split()


def test_license_is_the_whole_apache_license() -> None:
    """Compared with the text of a package that has the same license."""
    bundled = next(Path(REPOSITORY / ".venv" / "lib").glob("python*/site-packages/s3transfer-*.dist-info/LICENSE.txt"))
    assert words(REPOSITORY / "LICENSE") == words(bundled)


def words(path: Path) -> list[str]:
    return path.read_text().split()


def test_distributions_contain_the_license(tmp_path: Path) -> None:
    assert PROJECT["license"] == "Apache-2.0"
    names = set(PROJECT["license-files"])
    assert names == {"LICENSE", "NOTICE", "THIRD_PARTY_NOTICES"}
    subprocess.run(
        [REPOSITORY / ".venv" / "bin" / "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = {name.rpartition("/licenses/")[2] for name in archive.namelist() if "/licenses/" in name}
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    assert files == names
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nDescription-Content-Type: text/markdown\n" in metadata


def test_no_address_of_the_project_is_claimed() -> None:
    """The repository has no public address yet: nothing may name one."""
    assert "urls" not in PROJECT


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_form_is_complete(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    identifiers = [field["id"] for field in fields]
    assert len(set(identifiers)) == len(identifiers)
    assert any(field.get("validations", {}).get("required") for field in fields)
    for field in form["body"]:
        assert field["type"] in ("markdown", "input", "textarea", "dropdown", "checkboxes")
        assert ("value" if field["type"] == "markdown" else "label") in field["attributes"]


def test_code_owners_name_existing_paths() -> None:
    lines = [line.split() for line in (GITHUB / "CODEOWNERS").read_text().splitlines() if line[:1] not in ("", "#")]
    assert lines[0][0] == "*"
    for pattern, *owners in lines:
        assert owners
        assert all(owner.startswith("@") for owner in owners)
        assert pattern == "*" or (REPOSITORY / pattern.strip("/")).exists(), pattern


def test_dependabot_watches_every_lock() -> None:
    updates: list[dict[str, Any]] = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    watched = {
        (update["package-ecosystem"], folder)
        for update in updates
        for folder in update.get("directories") or [update["directory"]]
    }
    locked = {("npm", folder(path)) for path in tracked("*package-lock.json")}
    locked |= {("pip", folder(path)) for path in tracked("*.txt") if fnmatchcase(path, "*requirements*.txt")}
    assert watched == locked | {("github-actions", "/")}


def folder(path: str) -> str:
    return f"/{path.rpartition('/')[0]}"


def test_links_of_the_governance_files_resolve() -> None:
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"):
        text = (REPOSITORY / name).read_text()
        targets = [part.partition(")")[0] for part in text.split("](")[1:]]
        assert targets
        for target in targets:
            if not target.startswith("https://"):
                assert (REPOSITORY / target.partition("#")[0]).exists(), f"{name}: {target}"
