"""What `make release` checks, and the checksums that it writes."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from gpucost_devstack.template import REPOSITORY
from scripts.release import ReleaseError, check, release_notes, write_checksums

CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-23\n\n### Added\n- A.\n\n## [1.2.2] - 2026-11-01\n- B.\n"
)
ARTIFACTS = (
    "gpucost-1.2.3-py3-none-any.whl",
    "gpucost-1.2.3.tar.gz",
    "gpucost-1.2.3-sam.zip",
    "gpucost-1.2.3.cdx.json",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clean checkout of version 1.2.3."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "template.yaml").write_text("Metadata:\n    SemanticVersion: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Change")


def test_clean_checkout_of_the_version_passes(checkout: Path) -> None:
    check("1.2.3", checkout, "1.2.3")


@pytest.mark.parametrize("version", ["v1.2.3", "1.2", "1.2.3rc1", "1.2.3\n"])
def test_version_needs_three_numbers(checkout: Path, version: str) -> None:
    with pytest.raises(ReleaseError, match=r"Pass three numbers, for example 0\.1\.0"):
        check(version, checkout, version)


@pytest.mark.parametrize("name", ["pyproject.toml", "new.py"])
def test_uncommitted_change_is_refused(checkout: Path, name: str) -> None:
    with (checkout / name).open("a") as file:
        file.write("\n")
    with pytest.raises(ReleaseError, match=rf"uncommitted changes. Commit or remove them:\n.*{name}"):
        check("1.2.3", checkout, "1.2.3")


@pytest.mark.parametrize("name", ["pyproject.toml", "template.yaml"])
def test_other_version_in_a_file_is_refused(checkout: Path, name: str) -> None:
    path = checkout / name
    path.write_text(path.read_text().replace("1.2.3", "1.2.4"))
    commit(checkout)
    with pytest.raises(ReleaseError, match=rf"{name}.* has version 1\.2\.4, not 1\.2\.3"):
        check("1.2.3", checkout, "1.2.3")


def test_other_installed_version_is_refused(checkout: Path) -> None:
    with pytest.raises(ReleaseError, match=r"gpucost --version prints 1\.2\.2, not 1\.2\.3\. Run make setup\."):
        check("1.2.3", checkout, "1.2.2")


def test_version_without_entries_is_refused(checkout: Path) -> None:
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("### Added\n- A.\n", ""))
    commit(checkout)
    with pytest.raises(ReleaseError, match=r"CHANGELOG.md has no entries for 1\.2\.3"):
        check("1.2.3", checkout, "1.2.3")


def test_notes_are_the_section_of_the_version() -> None:
    assert release_notes("1.2.3", CHANGELOG) == "### Added\n- A.\n"
    assert release_notes("1.2.2", CHANGELOG) == "- B.\n"
    for version in ("1.2", "Unreleased", "1x2.3"):
        with pytest.raises(ReleaseError):
            release_notes(version, CHANGELOG)


def test_checksums_cover_every_artifact(tmp_path: Path) -> None:
    for name in (*ARTIFACTS, "gpucost-1.2.2.tar.gz"):
        (tmp_path / name).write_text(name)
    write_checksums("1.2.3", tmp_path)
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert sorted(lines) == sorted(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}" for name in ARTIFACTS)
    sha256sum = shutil.which("sha256sum")
    if sha256sum:  # macOS has shasum
        subprocess.run([sha256sum, "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("missing", ARTIFACTS)
def test_missing_artifact_is_refused(tmp_path: Path, missing: str) -> None:
    for name in ARTIFACTS:
        if name != missing:
            (tmp_path / name).write_text(name)
    with pytest.raises(ReleaseError, match=f"{missing} is missing"):
        write_checksums("1.2.3", tmp_path)


def test_version_is_the_same_everywhere() -> None:
    """The newest version of the changelog is the one in pyproject.toml and in the template."""
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    unreleased, newest = changelog.split("\n## [")[1:3]
    assert unreleased.startswith("Unreleased]\n")
    version = newest.partition("]")[0]
    for name, text in (
        ("pyproject.toml", f'\nversion = "{version}"\n'),
        ("template.yaml", f"SemanticVersion: {version}\n"),
    ):
        assert text in (REPOSITORY / name).read_text(), name
