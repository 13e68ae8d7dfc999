"""The template as CloudFormation sees it, transformed offline by AWS's own code."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

_CARRIED_FILES = Path(__file__).resolve().parent / "repository"
REPOSITORY = _CARRIED_FILES if _CARRIED_FILES.is_dir() else Path(__file__).resolve().parents[1]
"""The repository; in a wheel, the folder with those of its files that the wheel carries."""
IS_INSTALLED = REPOSITORY == _CARRIED_FILES
"""Whether this runs from a wheel, without a clone."""
TEMPLATE = REPOSITORY / "template.yaml"
REGION = "eu-central-1"
"""Any region will do. The transform derives the partition from it."""


def transformed_template(
    path: Path = TEMPLATE, *, uploaded: Mapping[str, str] | None = None, region: str = REGION, **parameters: str
) -> dict[str, Any]:
    """Transform a SAM template. Cached per process, because it takes a second.

    Args:
        path: the template file.
        uploaded: S3 keys of functions and layers by logical name, if they must differ.
        region: determines the partition of the ARNs that the transform writes.
        parameters: parameters that the transform itself uses, if they differ from their defaults.

    Raises:
        samtranslator.model.exceptions.InvalidDocumentException: the transform refuses the template.
    """
    return deepcopy(_transformed(path, tuple((uploaded or {}).items()), region, tuple(parameters.items())))


@cache
def _transformed(
    path: Path, uploaded: tuple[tuple[str, str], ...], region: str, parameters: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    import boto3
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator
    from samtranslator.yaml_helper import yaml_parse

    source = yaml_parse(path.read_text())
    keys = dict(uploaded)
    for logical, resource in source["Resources"].items():  # code is not uploaded, so any S3 URI will do
        for name in ("CodeUri", "ContentUri"):
            if name in resource.get("Properties", {}):
                resource["Properties"][name] = f"s3://bucket/{keys.get(logical, 'key')}"
    translator = Translator(_ManagedPolicies(), Parser(), boto_session=boto3.Session(region_name=region))
    document: dict[str, Any] = translator.translate(source, parameter_values=dict(parameters))
    return document


class _ManagedPolicies(dict[str, str]):
    """The template uses inline policies and the basic execution role only."""

    def load(self) -> dict[str, str]:
        """Names and ARNs of managed policies."""
        return {}
