"""Builds the documentation site in `build/site`, strictly, and checks what was built: `python -m authoring.site`."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from gpucost_devstack.template import REPOSITORY

CONFIGURATION = REPOSITORY / "zensical.toml"
DOCUMENTATION = REPOSITORY / "docs"
SITE = REPOSITORY / "build" / "site"
LISTED_ELSEWHERE = ("decisions/",)
"""Folders of pages that a page in the navigation lists."""
LOADED_BY = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
"""Elements that browsers load, and the attribute with the address."""
FETCHED_ON_DEMAND = ("mermaid", "pyodide", "glightbox")
"""Classes of elements for which the theme's script loads a library from another host."""
_LINE_LENGTH = 200
"""Zensical shows whole paragraphs, and then a line that points into them."""
_STYLE_ADDRESS = re.compile(r"""(?:@import\s+|url\(\s*)["']?([^"')\s]+)""")


def navigation_problems(configuration: Path = CONFIGURATION, folder: Path = DOCUMENTATION) -> Iterator[str]:
    """Yield pages that the navigation names and that are missing, and pages that it does not name."""
    named = set(_pages(tomllib.loads(configuration.read_text(encoding="utf-8"))["project"]["nav"]))
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    for page in sorted(named - written):
        yield f"{configuration.name}: the navigation names docs/{page}, which does not exist"
    for page in sorted(written - named):
        if not page.startswith(LISTED_ELSEWHERE):
            yield f"docs/{page}: the navigation in {configuration.name} does not name this page"


def site_problems(site: Path = SITE) -> Iterator[str]:
    """Yield addresses of other hosts that a browser would load, and links to files that are not in the site."""
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site)
        if path.suffix == ".css":
            for address in _STYLE_ADDRESS.findall(path.read_text(encoding="utf-8")):
                if is_elsewhere(address):
                    yield f"{name}: the style sheet loads {address}"
        if path.suffix == ".html":
            page = _Page()
            page.feed(path.read_text(encoding="utf-8"))
            yield from (f"{name}: the page loads {address}" for address in page.loaded if is_elsewhere(address))
            yield from (f"{name}: class {kind} makes the theme load a library" for kind in page.on_demand)
            for address in (*page.loaded, *page.links):
                target = unquote(urlsplit(address).path)
                if is_elsewhere(address) or not target or urlsplit(address).scheme or path.name == "404.html":
                    continue
                if not (path.parent / target).exists():
                    yield f"{name}: {address} is not in the site"


def is_elsewhere(address: str) -> bool:
    """Whether an address is on another host."""
    return address.startswith(("http:", "https:", "//"))


class _Page(HTMLParser):
    """Collects the addresses of a page: those that a browser loads, and those of links."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.on_demand: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: text or "" for name, text in attrs}
        if address := attributes.get(LOADED_BY.get(tag, "")):
            is_canonical = attributes.get("rel") in ("canonical", "prev", "next")  # not loaded
            (self.links if is_canonical else self.loaded).append(address)
        if tag == "a" and (address := attributes.get("href")):
            self.links.append(address)
        self.loaded += _STYLE_ADDRESS.findall(attributes.get("style", ""))
        self.on_demand |= set(FETCHED_ON_DEMAND).intersection(attributes.get("class", "").split())


def _pages(navigation: Any) -> Iterator[str]:
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, dict):
        for entry in navigation.values():
            yield from _pages(entry)
    else:
        for entry in navigation:
            yield from _pages(entry)


def build(folder: Path = REPOSITORY) -> str | None:
    """Build the site of a folder with a configuration, strictly; return what is wrong, or None."""
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    environment = {**os.environ, "NO_COLOR": "1"}
    built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if built.returncode == 0:
        return None
    shown = re.sub(r"\x1b\[[0-9;]*m", "", built.stdout + built.stderr).partition("Traceback")[0]
    return "\n".join(line[:_LINE_LENGTH] for line in shown.splitlines())


def main() -> int:
    """Build and check; the exit status is 1 if there is a problem."""
    problems = list(navigation_problems())
    failure = build()
    problems += site_problems() if failure is None else [failure]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
