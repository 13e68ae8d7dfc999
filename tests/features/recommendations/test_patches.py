"""Commands and manifests of recommendations contain names as names, whatever characters they have."""

import shlex
from collections.abc import Callable, Iterator

import pytest
import yaml

from gpucost.features.recommendations.kinds.base import replicas_patch
from gpucost.features.recommendations.kinds.cheaper_gpus import instance_types_patch
from gpucost.features.recommendations.kinds.consolidate import consolidation_patch, karpenter_settings_command
from gpucost.features.recommendations.kinds.fewer_gpus import fewer_gpus_patch
from gpucost.features.recommendations.kinds.mig_geometry import geometry_patch
from gpucost.features.recommendations.kinds.mig_slice import slice_patch
from gpucost.features.recommendations.kinds.off_hours import schedule_patch
from gpucost.features.recommendations.kinds.sharing import sharing_patch
from gpucost.features.recommendations.kinds.spot import spot_patch
from gpucost.features.recommendations.model import RecommendationSubject

HOSTILE = (
    "a; rm -rf ~",
    "$(reboot)",
    "`reboot`",
    "a\nrm -rf ~\n#",
    "it's",
    'a" b: c',
    "a\u2028rm",
    "a\\",
    "{a: b}",
    "#",
    "a&b",
)
Patch = Callable[[str], str]


def subject(name: str, resource: str = "nvidia.com/gpu") -> RecommendationSubject:
    return RecommendationSubject(
        cluster="demo", business_unit="ml", namespace=name, workload_kind="Deployment", workload=name, resource=resource
    )


COMMANDS: dict[str, Patch] = {
    "fewer GPUs": lambda name: fewer_gpus_patch(subject(name), 1, 2),
    "fewer of a resource": lambda name: fewer_gpus_patch(subject("ml", name), 1),
    "slice": lambda name: slice_patch(subject(name), "1g.5gb"),
    "slice of a resource": lambda name: slice_patch(subject("ml", name), name),
}
MANIFESTS: dict[str, Patch] = {
    "replicas": lambda name: replicas_patch(subject(name), 2),
    "schedule": lambda name: schedule_patch(subject(name), [(9, 18)], 2),
    "spot": lambda name: spot_patch(subject(name)),
    "instance types": lambda name: instance_types_patch(subject(name), [name, "g5.xlarge"]),
    "consolidation": consolidation_patch,
    "sharing": lambda name: sharing_patch(name, 4),
    "geometry": lambda name: geometry_patch(name, [[["1g.5gb"]]]),
}


def texts(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        for key, inner in document.items():
            yield from (*texts(key), *texts(inner))
    elif isinstance(document, list):
        for inner in document:
            yield from texts(inner)
    else:
        yield str(document)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("patch", COMMANDS)
def test_command_has_the_words_of_an_ordinary_name(patch: str, name: str) -> None:
    def words(subject_name: str) -> list[str]:
        return shlex.split(COMMANDS[patch](subject_name), comments=True)

    assert words(name) == [word.replace("plain", name) for word in words("plain")]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("patch", MANIFESTS)
def test_manifest_has_the_keys_of_an_ordinary_name(patch: str, name: str) -> None:
    def parts(subject_name: str) -> list[str]:
        return list(texts(yaml.safe_load(MANIFESTS[patch](subject_name))))

    assert parts(name) == [part.replace("plain", name) for part in parts("plain")]


@pytest.mark.parametrize("name", HOSTILE)
def test_printed_command_is_one_line_with_the_name_as_one_word(name: str) -> None:
    command = karpenter_settings_command(name)
    assert len(command.splitlines()) == 1
    assert shlex.split(command)[:3] == ["kubectl", "get", "nodepool"]
    assert len(shlex.split(command)) == 6
