"""THIRD_PARTY_NOTICES lists what the releases bundle, and refuses licenses that do not permit it."""

import json
import re

import pytest

from gpucost_devstack.template import REPOSITORY
from scripts.notices import LOCKS, NOTICES, PAGE_LICENSES, NoticesError, Package, current_notices, is_allowed, notices

MIT = Package("a", "1.0", "MIT", "The MIT text", "")


def test_file_lists_bundled_packages() -> None:
    assert NOTICES.read_text() == current_notices(), "run: make notices"


def test_every_locked_package_of_the_layers_is_listed() -> None:
    """Read from the locks, without pip-licenses."""
    section = NOTICES.read_text().partition("Dashboard page:")[0]
    listed = {canonical(line) for line in re.findall(r"^  (\S+ \S+) \(", section, re.MULTILINE)}
    locked = {
        canonical(f"{name} {version}")
        for lock in LOCKS
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(), re.MULTILINE)
    }
    assert listed == locked


def test_every_dependency_of_the_page_is_listed() -> None:
    """Read from package.json, without the bundler."""
    dependencies = json.loads((REPOSITORY / "web" / "package.json").read_text())["dependencies"]
    bundled = {entry["name"]: entry["version"] for entry in json.loads(PAGE_LICENSES.read_text())}
    assert dependencies.items() <= bundled.items()
    section = NOTICES.read_text().partition("Dashboard page:")[2]
    assert all(f"  {name} {version} (" in section for name, version in bundled.items())


def test_no_development_tool_is_listed() -> None:
    assert not re.search(r"^  (vite|rollup|pytest|moto) ", NOTICES.read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "license_name",
    [
        "MIT",
        "Apache-2.0",
        "MPL-2.0",
        "MIT OR AFL-2.1",
        "(MIT OR GPL-3.0)",
        "Apache Software License; BSD License",
        "BSD-3-Clause AND MIT",
        "MIT License; MIT No Attribution License (MIT-0)",
    ],
)
def test_permissive_license_is_allowed(license_name: str) -> None:
    assert is_allowed(license_name)


@pytest.mark.parametrize(
    "license_name",
    ["GPL-3.0", "AGPL-3.0-only", "UNKNOWN", "", "MIT AND GPL-3.0", "MIT License; GNU General Public License (GPL)"],
)
def test_other_license_is_refused(license_name: str) -> None:
    assert not is_allowed(license_name)
    with pytest.raises(NoticesError, match=r"^a 1\.0: the license .* is not allowed"):
        notices([MIT._replace(license=license_name)], [])
    with pytest.raises(NoticesError):
        notices([MIT], [MIT._replace(license=license_name)])


def test_package_without_its_license_text_is_refused() -> None:
    with pytest.raises(NoticesError, match=r"a 1\.0 has no license text"):
        notices([MIT._replace(text="")], [])


def test_equal_texts_are_written_once() -> None:
    text = notices([MIT, MIT._replace(name="b")], [MIT._replace(name="c", text="Another text")])
    assert text.count("The MIT text") == 1
    assert "a 1.0, b 1.0" in text
    assert "Another text" in text


def test_notices_stay_small() -> None:
    assert NOTICES.stat().st_size < 500_000


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_license_text_is_written() -> None:
    """Every package is the title of one text."""
    listing, *texts = re.split(r"^={80}\n", NOTICES.read_text(), flags=re.MULTILINE)
    listed = re.findall(r"^  (\S+ \S+) \(", listing, re.MULTILINE)
    titled = [name for title in texts[::2] for name in title.strip().split(", ")]
    assert sorted(titled) == sorted(listed)
    assert all(len(text) > 200 for text in texts[1::2])
