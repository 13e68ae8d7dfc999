"""Writes THIRD_PARTY_NOTICES: the licenses of the packages in the Lambda layers and in the dashboard page.

pip-licenses reads the layers' packages, which are installed from their locks, and the build of the page lists the
packages that it bundles. `make notices` writes the file. `python -m scripts.notices --check` compares it, and fails if
a license is not allowed.
"""

import argparse
import difflib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
NOTICES = REPOSITORY / "THIRD_PARTY_NOTICES"
LOCKS = tuple(REPOSITORY / "layers" / layer / "requirements.txt" for layer in ("deps", "duckdb"))
PAGE_LICENSES = REPOSITORY / "functions" / "api" / "page" / "licenses.json"
UV = REPOSITORY / ".venv" / "bin" / "uv"
TOOLS = REPOSITORY / ".tools" / "release" / "bin"
ALLOWED = frozenset(
    [
        "0BSD",
        "Apache Software License",
        "Apache-2.0",
        "BSD License",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "ISC License (ISCL)",
        "MIT",
        "MIT License",
        "MIT No Attribution License (MIT-0)",
        "MIT-0",
        "MPL-2.0",
        "Mozilla Public License 2.0 (MPL 2.0)",
        "PSF-2.0",
        "Python Software Foundation License",
    ]
)
"""SPDX identifiers, and the names of PyPI's classifiers for packages without an SPDX expression."""
NO_TEXT = "UNKNOWN"
"""What pip-licenses writes for a missing text."""


class Package(NamedTuple):
    """A bundled package and its license."""

    name: str
    version: str
    license: str
    text: str
    notice: str


class NoticesError(Exception):
    """A license is not allowed, or its text is missing."""


def is_allowed(license_name: str) -> bool:
    """Whether a license may be bundled. Of alternatives (`OR`) one must be allowed, otherwise every part."""
    return any(
        all(part.strip(" ()") in ALLOWED or part.strip() in ALLOWED for part in re.split(r"; | AND ", alternative))
        for alternative in license_name.split(" OR ")
    )


def layer_environment(folder: Path, locks: Sequence[Path] = LOCKS) -> Path:
    """Install the packages of Lambda's layers into a new environment, and return its interpreter."""
    python = folder / "bin" / "python"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    subprocess.run(
        [
            UV,
            "pip",
            "install",
            "--quiet",
            "--no-config",
            "--no-deps",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--python-platform",
            "aarch64-manylinux_2_28",
            "--python-version",
            "3.13",
            "--python",
            python,
            *(argument for lock in locks for argument in ("-r", lock)),
        ],
        check=True,
    )
    return python


def layer_packages(python: Path) -> list[Package]:
    """The packages of an environment, read by pip-licenses."""
    listed = subprocess.run(
        [
            TOOLS / "pip-licenses",
            "--python",
            python,
            "--with-system",
            "--with-license-file",
            "--with-notice-file",
            "--no-license-path",
            "--format",
            "json",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return [
        Package(
            entry["Name"], entry["Version"], entry["License"], _text(entry["LicenseText"]), _text(entry["NoticeText"])
        )
        for entry in json.loads(listed.stdout)
    ]


def page_packages(path: Path = PAGE_LICENSES) -> list[Package]:
    """The packages that the built page bundles."""
    return [
        Package(
            entry["name"],
            entry["version"],
            entry["license"],
            _text(entry.get("licenseText")),
            _text(entry.get("noticeText")),
        )
        for entry in json.loads(path.read_text())
    ]


def notices(layers: Iterable[Package], page: Iterable[Package]) -> str:
    """Return the text of THIRD_PARTY_NOTICES.

    Raises:
        NoticesError: a license is not allowed, or a package lacks its license's text.
    """
    sections = (("Lambda layers", sorted(layers)), ("Dashboard page", sorted(page)))
    for package in (package for _, packages in sections for package in packages):
        if not is_allowed(package.license):
            raise NoticesError(
                f"{package.name} {package.version}: the license {package.license!r} is not allowed. "
                "Replace the package, or add the license to ALLOWED in scripts/notices.py if it permits bundling."
            )
        if not package.text:
            raise NoticesError(f"{package.name} {package.version} has no license text. Replace the package.")
    return "\n".join(_lines(sections)) + "\n"


def _lines(sections: Sequence[tuple[str, Sequence[Package]]]) -> Iterator[str]:
    yield "Third-party software in the releases of gpucost. Written by `make notices`; do not edit."
    for title, packages in sections:
        yield from ("", f"{title}:")
        yield from (f"  {package.name} {package.version} ({package.license})" for package in packages)
    texts: dict[str, list[str]] = {}
    for package in (package for _, packages in sections for package in packages):
        text = f"{package.text}\n\n{package.notice}" if package.notice else package.text
        texts.setdefault(text, []).append(f"{package.name} {package.version}")
    for text, names in texts.items():
        yield from ("", "=" * 80, ", ".join(names), "=" * 80, "", text)


def _text(text: str | None) -> str:
    if text is None or text == NO_TEXT:
        return ""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def current_notices() -> str:
    """The text for the present locks and the built page."""
    with tempfile.TemporaryDirectory() as folder:
        return notices(layer_packages(layer_environment(Path(folder) / "layers")), page_packages())


def main() -> int:
    """Write or check the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the file, and write nothing")
    arguments = parser.parse_args()
    try:
        text = current_notices()
    except NoticesError as error:
        print(error, file=sys.stderr)
        return 1
    if not arguments.check:
        NOTICES.write_text(text)
        return 0
    written = NOTICES.read_text() if NOTICES.exists() else ""
    changes = list(difflib.unified_diff(written.splitlines(), text.splitlines(), "THIRD_PARTY_NOTICES", "bundled", n=0))
    if changes:
        print("\n".join(changes[:40]), "THIRD_PARTY_NOTICES is outdated; run: make notices", sep="\n", file=sys.stderr)
    return int(bool(changes))


if __name__ == "__main__":
    sys.exit(main())
