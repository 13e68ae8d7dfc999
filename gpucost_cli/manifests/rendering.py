"""Writes the kit: `cluster/` filled with values, one file for one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from devstack.template import REPOSITORY
from gpucost.core.errors import GpuCostError, InvalidInputError

SOURCE = REPOSITORY / "cluster"
SCRAPING = "collection/scrape-configs.yaml"
"""The block that every collector scrapes by, generated once."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The same language, read by the C library where it is there."""
FOLDERS = ("aws", "collection", "eksctl", "helm", "karpenter", "workloads")
"""Of `cluster/`; beside them stand `env.sh`, what is read, and what other commands use."""


def rendered(values: Mapping[str, Any], source: Path = SOURCE) -> Iterator[tuple[str, str]]:
    """Every file of the kit, as its path and text.

    Raises:
        GpuCostError: a template names a value that there is not, or what it gives is not YAML; says which.
    """
    environment = Environment(
        loader=FileSystemLoader(source),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # YAML, whose values are checked by the models that they come from
    )
    environment.filters["yaml"] = _as_yaml
    found = dict(values)
    names = sorted(_names(source), key=lambda name: name != SCRAPING)
    for name in names:
        try:
            text = environment.get_template(name).render(found)
            if name.endswith(".yaml"):
                documents = [] if name.startswith("aws/") else list(yaml.load_all(text, Loader=_LOADER))
                if name == SCRAPING:
                    found["scrape_configs"] = documents[0]["scrape_configs"]
        except (TemplateError, yaml.YAMLError) as error:
            raise GpuCostError(f"cluster/{name} cannot be rendered: {error}") from error
        if text.strip():  # a file that these settings have no use for is left out
            yield name, text


def write(values: Mapping[str, Any], out: Path) -> list[str]:
    """Write every file under a folder; answers their paths in it.

    Raises:
        InvalidInputError: the folder holds something that is no kit, or cannot be written to.
        GpuCostError: as `rendered`.
    """
    files = dict(rendered(values))
    foreign = sorted(path.name for path in out.iterdir() if path.name not in _tops(files)) if out.is_dir() else []
    if foreign:
        raise InvalidInputError(f"{str(out)!r} holds {foreign[0]!r}, which is no part of a kit; name an empty folder")
    try:
        for name in _names(SOURCE):
            if name not in files:  # of an earlier rendering, whose settings had a use for it
                (out / name).unlink(missing_ok=True)
        for name, text in files.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{str(out)!r} cannot be written to: {error.strerror}") from error
    return list(files)


def _names(source: Path) -> list[str]:
    return [name for name in FileSystemLoader(source).list_templates() if _is_of_the_kit(name)]


def _is_of_the_kit(name: str) -> bool:
    return name == "env.sh" or name.partition("/")[0] in FOLDERS


def _tops(files: Mapping[str, str]) -> set[str]:
    return {name.partition("/")[0] for name in files}


def _as_yaml(value: object, indent: int = 0) -> str:
    """A value as a YAML block, its lines after the first indented."""
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1000)
    return text.rstrip("\n").replace("\n", "\n" + " " * indent)
