"""The catalog of instance types: what its generator reads, and recorded facts that it must match."""

import gzip
import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import moto
import pytest

from authoring.hardware import Table, described_rows, parse_karpenter_page
from gpucost.core.metering import instance_type_table
from gpucost.core.metering.instance_types import (
    CATALOG,
    CATALOG_DAY,
    GPUS_OF_INSTANCE,
    NEURON_OF_INSTANCE,
    SAGEMAKER_PREFIX,
    InstanceType,
)

# Facts from AWS's documentation of July 2026, by family: the GPUs or devices of the sizes.
DOCUMENTED: dict[str, dict[str, int | str]] = {
    "p2": {"xlarge": 1, "8xlarge": 8, "16xlarge": 16},
    "p3": {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8},
    "p3dn": {"24xlarge": 8},
    "p4d": {"24xlarge": 8},
    "p4de": {"24xlarge": 8},
    "p5": {"4xlarge": 1, "48xlarge": 8},
    "p5e": {"48xlarge": 8},
    "p5en": {"48xlarge": 8},
    "p6-b200": {"48xlarge": 8},
    "p6-b300": {"48xlarge": 8},
    "p6e-gb200": {"36xlarge": 4},
    "g3": {"4xlarge": 1, "8xlarge": 2, "16xlarge": 4},
    "g3s": {"xlarge": 1},
    "g4dn": {"xlarge": 1, "16xlarge": 1, "12xlarge": 4, "metal": 8},
    "g5": {"xlarge": 1, "16xlarge": 1, "12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
    "g5g": {"xlarge": 1, "8xlarge": 1, "16xlarge": 2, "metal": 2},
    "g6": {"xlarge": 1, "12xlarge": 4, "48xlarge": 8},
    "g6e": {"xlarge": 1, "24xlarge": 4, "48xlarge": 8},
    "gr6": {"4xlarge": 1, "8xlarge": 1},
    "g6f": {"large": "1/8", "xlarge": "1/8", "2xlarge": "1/4", "4xlarge": "1/2"},
    "gr6f": {"4xlarge": "1/2"},
    "g7": {"2xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
    "g7e": {"2xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
}
NEURON = {
    "inf1.xlarge": (1, 4),
    "inf1.6xlarge": (4, 4),
    "inf1.24xlarge": (16, 4),
    "inf2.xlarge": (1, 2),
    "inf2.24xlarge": (6, 2),
    "inf2.48xlarge": (12, 2),
    "trn1.2xlarge": (1, 2),
    "trn1.32xlarge": (16, 2),
    "trn1n.32xlarge": (16, 2),
    "trn2.3xlarge": (1, 4),
    "trn2.48xlarge": (16, 4),
    "trn2u.48xlarge": (16, 4),
}
"""Devices, and cores per device."""

KARPENTER_PAGE = """## g6 Family
### `g6.xlarge`
#### Labels
 | Label | Value |
 |--|--|
 |karpenter.k8s.aws/instance-cpu|4|
 |karpenter.k8s.aws/instance-gpu-count|1|
 |karpenter.k8s.aws/instance-gpu-manufacturer|nvidia|
 |karpenter.k8s.aws/instance-gpu-memory|22888|
 |karpenter.k8s.aws/instance-gpu-name|l4|
 |karpenter.k8s.aws/instance-memory|16384|
### `g6f.xlarge`
 |karpenter.k8s.aws/instance-cpu|4|
 |karpenter.k8s.aws/instance-gpu-count|0|
 |karpenter.k8s.aws/instance-gpu-manufacturer|nvidia|
 |karpenter.k8s.aws/instance-gpu-memory|2861|
 |karpenter.k8s.aws/instance-gpu-name|l4|
 |karpenter.k8s.aws/instance-memory|16384|
### `m7i.xlarge`
 |karpenter.k8s.aws/instance-cpu|4|
 |karpenter.k8s.aws/instance-memory|16384|
### `x1f.xlarge`
 |karpenter.k8s.aws/instance-cpu|4|
 |karpenter.k8s.aws/instance-gpu-count|0|
 |karpenter.k8s.aws/instance-gpu-manufacturer|nvidia|
 |karpenter.k8s.aws/instance-gpu-memory|2861|
 |karpenter.k8s.aws/instance-gpu-name|unlisted|
 |karpenter.k8s.aws/instance-memory|16384|
### `trn2.48xlarge`
 |karpenter.k8s.aws/instance-accelerator-count|16|
 |karpenter.k8s.aws/instance-accelerator-manufacturer|aws|
 |karpenter.k8s.aws/instance-accelerator-name|trainium2|
 |karpenter.k8s.aws/instance-cpu|192|
 |karpenter.k8s.aws/instance-memory|2097152|
#### Resources
 |aws.amazon.com/neuron|16|
 |aws.amazon.com/neuroncore|128|
"""
"""Lines as in karpenter-provider-aws 1.14, `reference/instance-types.md`; `x1f` is invented."""


@pytest.fixture(scope="module")
def recorded() -> Mapping[str, Any]:
    """EC2's responses, as moto's maintainers recorded them."""
    path = Path(moto.__file__).parent / "ec2/resources/instance_types.json.gz"
    instance_types: Mapping[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return instance_types


def test_gpus_are_as_documented() -> None:
    documented = {
        f"{family}.{size}": Fraction(gpus) for family, sizes in DOCUMENTED.items() for size, gpus in sizes.items()
    }
    assert {name: GPUS_OF_INSTANCE[name] for name in documented} == documented
    assert {name.removeprefix(SAGEMAKER_PREFIX).partition(".")[0] for name in GPUS_OF_INSTANCE} == DOCUMENTED.keys()


def test_neuron_devices_and_cores_are_as_documented() -> None:
    assert {name: NEURON_OF_INSTANCE[name] for name in NEURON} == NEURON
    families = {name.partition(".")[0] for name in NEURON}
    assert {name.removeprefix(SAGEMAKER_PREFIX).partition(".")[0] for name in NEURON_OF_INSTANCE} == families


def test_catalog_matches_every_type_that_ec2_describes(recorded: Mapping[str, Any]) -> None:
    rows = described_rows(recorded.values())
    assert len(rows) > 75
    differences = {name: (row, CATALOG.get(name)) for name, row in rows.items() if CATALOG.get(name) != row}
    assert not differences


def test_accelerators_of_other_manufacturers_are_listed_but_not_metered() -> None:
    assert {row.manufacturer for row in CATALOG.values()} == {"NVIDIA", "AWS", "AMD", "HABANA", "Qualcomm"}
    assert CATALOG["g4ad.16xlarge"].devices == 4
    assert "g4ad.16xlarge" not in GPUS_OF_INSTANCE
    assert {"dl1.24xlarge", "dl2q.24xlarge"}.isdisjoint({*GPUS_OF_INSTANCE, *NEURON_OF_INSTANCE})


def test_karpenter_page_has_parts_of_gpus_by_their_memory() -> None:
    rows = parse_karpenter_page(KARPENTER_PAGE)
    assert {name: row.devices for name, row in rows.items()} == {
        "g6.xlarge": 1,
        "g6f.xlarge": Fraction(1, 8),
        "trn2.48xlarge": 16,
    }
    assert rows["trn2.48xlarge"].cores_per_device == 8
    with pytest.raises(ValueError, match="does not list instance types"):
        parse_karpenter_page("# Instance types")


def test_later_source_replaces_types_and_keeps_the_others() -> None:
    table = Table(
        [("old", "2024-01-01")],
        {"p2.xlarge": ("NVIDIA", "K80", "1", 12288, 0, 4, 62464, 0), "p9.xlarge": ("NVIDIA", "X", "1", 1, 0, 4, 1, 0)},
    )
    table.update(("unused", "2025-01-01"), {})
    table.update(("new", "2026-01-01"), {"p9.xlarge": InstanceType("NVIDIA", "X100", Fraction(2), 2, 0, 4, 1)})
    module: dict[str, Any] = {}
    exec(table.render(), module)
    assert (module["SOURCES"], module["DAYS"]) == (("old", "new"), ("2024-01-01", "2026-01-01"))
    assert module["INSTANCE_TYPES"] == {
        "p2.xlarge": ("NVIDIA", "K80", "1", 12288, 0, 4, 62464, 0),
        "p9.xlarge": ("NVIDIA", "X100", "2", 2, 0, 4, 1, 1),
    }


def test_day_of_the_catalog_is_that_of_ec2s_responses() -> None:
    (moto_day,) = (
        day
        for source, day in zip(instance_type_table.SOURCES, instance_type_table.DAYS, strict=True)
        if source.endswith("instance_types.json")
    )
    assert moto_day == CATALOG_DAY


def test_committed_table_is_as_generated() -> None:
    sources = zip(instance_type_table.SOURCES, instance_type_table.DAYS, strict=True)
    text = Table(sources, instance_type_table.INSTANCE_TYPES).render()
    assert Path(instance_type_table.__file__).read_text() == text
