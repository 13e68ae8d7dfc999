"""Checks and packages a release. `make release VERSION=0.1.0` runs `check`, builds, and runs `package`."""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from scripts.notices import TOOLS, Package, layer_environment, page_packages

REPOSITORY = Path(__file__).resolve().parents[1]
BUILT = REPOSITORY / ".aws-sam" / "build"
DIST = REPOSITORY / "dist"
DOCUMENTS = ("LICENSE", "NOTICE", "THIRD_PARTY_NOTICES", "README.md", "CHANGELOG.md")
"""Files of the repository that the archive contains."""
EARLIEST_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of all files in the archive, the earliest that the format can store: two builds are byte-equal."""


class ReleaseError(Exception):
    """A release cannot be made. The message says why, and what to do."""


def check(version: str, repository: Path, installed: str) -> None:
    """Check that a version can be released from a checkout.

    Args:
        version: the version to release.
        repository: the checkout.
        installed: the version that `gpucost --version` prints.

    Raises:
        ReleaseError: the checkout has changes, or does not contain this version.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"VERSION is {version!r}. Pass three numbers, for example 0.1.0.")
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    changes = subprocess.run(status, cwd=repository, check=True, capture_output=True, text=True).stdout
    if changes:
        raise ReleaseError(f"the checkout has uncommitted changes. Commit or remove them:\n{changes.rstrip()}")
    for file, written in _written_versions(repository).items():
        if written != version:
            raise ReleaseError(f"{file} has version {written}, not {version}. Change it and commit.")
    if installed != version:
        raise ReleaseError(f"gpucost --version prints {installed}, not {version}. Run make setup.")
    release_notes(version, (repository / "CHANGELOG.md").read_text())


def _written_versions(repository: Path) -> Mapping[str, str]:
    template = (repository / "template.yaml").read_text()
    semantic = re.search(r"^ +SemanticVersion: (\S+)$", template, re.MULTILINE)
    return {
        "pyproject.toml": tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"],
        "template.yaml (SemanticVersion)": semantic[1] if semantic else "none",
    }


def release_notes(version: str, changelog: str) -> str:
    """Return the section of a version in the changelog.

    Raises:
        ReleaseError: the section is missing or empty.
    """
    heading = re.compile(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}\n(.*?)(?=^## |\Z)", re.M | re.S)
    section = heading.search(changelog)
    if section is None or not section[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no entries for {version}. Add a section ## [{version}] - YYYY-MM-DD.")
    return section[1].strip() + "\n"


def write_archive(built: Path, repository: Path, archive: Path, *, level: int = 6) -> None:
    """Write what `sam build` made, so that `sam deploy` can deploy it in any region without building.

    Args:
        built: what `sam build` made.
        repository: has the documents.
        archive: the file to write.
        level: of the compression, 0 to 9.
    """
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content, is_executable in sorted(_archived_files(built, repository)):
            info = zipfile.ZipInfo(f"{archive.stem}/{name}", EARLIEST_TIME)
            info.create_system = 3  # Unix, on every machine
            info.external_attr = (0o100755 if is_executable else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(info, content, compresslevel=level)


def _archived_files(built: Path, repository: Path) -> Iterator[tuple[str, bytes, bool]]:
    for path in built.rglob("*"):
        if path.is_file() and path != built / "template.yaml":
            yield path.relative_to(built).as_posix(), path.read_bytes(), bool(path.stat().st_mode & 0o100)
    # SAM writes these paths relative to the built template. In the archive, the files are next to it.
    local = re.compile(r"^( +(?:LicenseUrl|ReadmeUrl): )\S*?([^/\s]+)$", re.MULTILINE)
    yield "template.yaml", local.sub(r"\1\2", (built / "template.yaml").read_text()).encode(), False
    for name in DOCUMENTS:
        yield name, (repository / name).read_bytes(), False


def bill_of_materials(python: Path, page: Iterable[Package], pyproject: Path) -> dict[str, Any]:
    """Return the CycloneDX document of an environment's packages and the page's.

    Args:
        python: interpreter of an environment with the packages of the layers.
        page: packages that the dashboard page bundles.
        pyproject: describes the main component.
    """
    listed = subprocess.run(
        [
            TOOLS / "cyclonedx-py",
            "environment",
            "--pyproject",
            pyproject,
            "--output-reproducible",
            "--of",
            "JSON",
            python,
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    document: dict[str, Any] = json.loads(listed.stdout)
    main = document["metadata"]["component"]["bom-ref"]
    bundled = next(entry for entry in document["dependencies"] if entry["ref"] == main)
    for package in page:
        purl = f"pkg:npm/{package.name.replace('@', '%40')}@{package.version}"
        document["components"].append(
            {
                "bom-ref": purl,
                "type": "library",
                "name": package.name,
                "version": package.version,
                "purl": purl,
                "licenses": [{"expression": package.license}],
            }
        )
        document["dependencies"].append({"ref": purl})
        bundled["dependsOn"] = [*bundled.get("dependsOn", ()), purl]
    return document


def write_checksums(version: str, folder: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads.

    Raises:
        ReleaseError: a file of the release is missing.
    """
    files = {path.name: path for path in sorted(folder.glob(f"gpucost-{version}*"))}
    for suffix in ("-py3-none-any.whl", ".tar.gz", "-sam.zip", ".cdx.json"):
        if f"gpucost-{version}{suffix}" not in files:
            raise ReleaseError(f"{folder.name}/gpucost-{version}{suffix} is missing. Run make release again.")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in files.items()]
    (folder / "SHA256SUMS").write_text("".join(lines))


def package(version: str) -> None:
    """Write the archive, the bill of materials and the checksums into dist/."""
    DIST.mkdir(exist_ok=True)
    write_archive(BUILT, REPOSITORY, DIST / f"gpucost-{version}-sam.zip")
    with tempfile.TemporaryDirectory() as folder:
        python = layer_environment(Path(folder) / "layers")
        document = bill_of_materials(python, page_packages(), REPOSITORY / "pyproject.toml")
    (DIST / f"gpucost-{version}.cdx.json").write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
    write_checksums(version, DIST)


def main() -> int:
    """Run a step of the release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["check", "package", "notes"], help="notes prints the changelog of the version")
    parser.add_argument("version")
    arguments = parser.parse_args()
    try:
        if arguments.step == "check":
            check(arguments.version, REPOSITORY, metadata.version("gpucost"))
        elif arguments.step == "package":
            package(arguments.version)
        else:
            print(release_notes(arguments.version, (REPOSITORY / "CHANGELOG.md").read_text()), end="")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
