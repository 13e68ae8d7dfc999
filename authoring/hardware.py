"""Writes the product's table of accelerators by EC2 instance type: `python -m authoring.hardware SOURCE ...`.

`--karpenter FOLDER` reads the documentation in a checkout of Karpenter's AWS provider
(https://github.com/aws/karpenter-provider-aws, Apache-2.0), which lists retired types in its older versions. `--moto
FOLDER` reads a checkout of moto (https://github.com/getmoto/moto, Apache-2.0), whose maintainers record EC2's responses
of DescribeInstanceTypes in every region once a month. `--aws REGION ...` asks EC2 itself, and needs
`ec2:DescribeInstanceTypes`. Later sources in this list replace earlier ones. A type that no source lists keeps its row.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from gpucost.core.metering import instance_type_table
from gpucost.core.metering.instance_types import InstanceType

TABLE = Path(__file__).parent.parent / "layers/common/gpucost/core/metering/instance_type_table.py"
KARPENTER_REPOSITORY = "https://github.com/aws/karpenter-provider-aws"
KARPENTER_FOLDER = "website/content/en"
KARPENTER_FILE = "reference/instance-types.md"
MOTO_REPOSITORY = "https://github.com/getmoto/moto"
MOTO_FILE = "moto/ec2/resources/instance_types.json"
UNLISTED_TYPES = {
    # GPUs: https://docs.aws.amazon.com/eks/latest/userguide/ml-eks-nvidia-ultraserver.html ("4 NVIDIA Blackwell GPUs").
    # vCPUs and memory: https://aws.amazon.com/ec2/instance-types/p6/ (an eighteenth of u-p6e-gb200x72).
    "p6e-gb200.36xlarge": InstanceType("NVIDIA", "GB200", Fraction(4), 0, 0, 144, 960 * 1024),
    # https://awsdocs-neuron.readthedocs-hosted.com/en/latest/about-neuron/arch/neuron-hardware/trn2-arch.html
    "trn2u.48xlarge": InstanceType("AWS", "Trainium2", Fraction(16), 0, 8, 192, 2048 * 1024),
}
"""Types of UltraServers, which EC2 describes only to accounts that may use them, from AWS's documentation."""
UNLISTED_SOURCE = ("AWS's documentation; see authoring/hardware.py", "2026-11-25")
_MARKDOWN_ROW = re.compile(r"^ \|([^|]+)\|([^|]+)\|$", re.MULTILINE)
_PART_MEMORY_TOLERANCE_MIB = 1
"""EC2 rounds the memory of a part of a GPU down to a MiB."""

Rows = dict[str, InstanceType]
Source = tuple[str, str]
"""What it is, and the day of its figures (YYYY-MM-DD)."""


def parse_described(described: Mapping[str, Any]) -> InstanceType | None:
    """Read one of the instance types in EC2's response of DescribeInstanceTypes; None without accelerators."""
    gpus = described.get("GpuInfo", {}).get("Gpus", ())
    neuron = described.get("NeuronInfo", {}).get("NeuronDevices", ())
    others = described.get("InferenceAcceleratorInfo", {}).get("Accelerators", ())
    devices = gpus or neuron or others  # Inferentia is listed as a Neuron device and as an inference accelerator
    if not devices:
        return None
    device = devices[0]
    # Of a part of a GPU, `Count` is 0.
    count = Fraction(device.get("LogicalGpuCount", device["Count"])) * Fraction(str(device.get("GpuPartitionSize", 1)))
    return InstanceType(
        device.get("Manufacturer", "AWS"),
        device["Name"],
        count,
        device.get("MemoryInfo", {}).get("SizeInMiB", 0),
        device.get("CoreInfo", {}).get("Count", 0),
        described["VCpuInfo"]["DefaultVCpus"],
        described["MemoryInfo"]["SizeInMiB"],
    )


def described_rows(instance_types: Iterable[Mapping[str, Any]]) -> Rows:
    """Return the rows of the types with accelerators."""
    rows = {described["InstanceType"]: parse_described(described) for described in instance_types}
    return {name: row for name, row in rows.items() if row is not None}


def parse_karpenter_page(text: str) -> Rows:
    """Read Karpenter's page of instance types.

    The page has no count of the types with a part of a GPU: the part is their memory over that of the whole GPU.

    Raises:
        ValueError: the page has another format.
    """
    rows: Rows = {}
    parts: dict[str, InstanceType] = {}
    for section in re.split(r"^### `", text, flags=re.MULTILINE)[1:]:
        name, facts = section.partition("`")[0], dict(_MARKDOWN_ROW.findall(section))
        row = _row_of_labels(facts)
        if row is not None:
            (rows if row.devices else parts)[name] = row
    if not rows:
        raise ValueError("the page does not list instance types as Karpenter's does")
    for name, part in parts.items():
        whole = max((row.device_memory_mib for row in rows.values() if row.model == part.model), default=0)
        ratio = Fraction(round(whole / part.device_memory_mib)) if whole else Fraction(0)
        if not ratio or abs(whole - ratio * part.device_memory_mib) > ratio * _PART_MEMORY_TOLERANCE_MIB:
            continue
        rows[name] = part._replace(devices=1 / ratio)
    return rows


def _row_of_labels(facts: Mapping[str, str]) -> InstanceType | None:
    prefix = "karpenter.k8s.aws/instance-"
    for kind in ("gpu", "accelerator"):
        if f"{prefix}{kind}-name" in facts:
            devices = Fraction(facts[f"{prefix}{kind}-count"])
            cores = Fraction(facts.get("aws.amazon.com/neuroncore", "0"))
            return InstanceType(
                facts[f"{prefix}{kind}-manufacturer"].upper(),
                facts[f"{prefix}{kind}-name"].upper(),
                devices,
                int(facts.get(f"{prefix}{kind}-memory", "0")),
                int(cores / devices) if devices else 0,
                int(facts[f"{prefix}cpu"]),
                int(facts[f"{prefix}memory"]),
            )
    return None


def karpenter_sources(checkout: Path) -> Iterator[tuple[Source, Rows]]:
    """Yield the rows of each version of the documentation, the oldest first, with its source and day."""
    versions = _git(checkout, "ls-tree", "--name-only", "HEAD", f"{KARPENTER_FOLDER}/").split()
    numbered = [path for path in versions if re.fullmatch(r"v\d+\.\d+", path.rpartition("/")[2])]
    numbered.sort(key=lambda path: [int(part) for part in path.rpartition("/v")[2].split(".")])
    for folder in [*numbered, f"{KARPENTER_FOLDER}/preview"]:
        path = f"{folder}/{KARPENTER_FILE}"
        yield (
            _committed(checkout, KARPENTER_REPOSITORY, path),
            parse_karpenter_page(_git(checkout, "show", f"HEAD:{path}")),
        )


def moto_source(checkout: Path) -> tuple[Source, Rows]:
    """Return the rows of the responses that moto's maintainers recorded, with their source and day."""
    recorded = json.loads(_git(checkout, "show", f"HEAD:{MOTO_FILE}"))
    return _committed(checkout, MOTO_REPOSITORY, MOTO_FILE), described_rows(recorded.values())


def aws_source(regions: Iterable[str]) -> tuple[Source, Rows]:
    """Ask EC2 for the instance types of some regions."""
    from gpucost.runtime.aws import AwsClients

    clients, rows = AwsClients(), Rows()
    for region in regions:
        for page in clients("ec2", region).get_paginator("describe_instance_types").paginate():
            rows |= described_rows(page["InstanceTypes"])
    return ("EC2 (DescribeInstanceTypes)", f"{datetime.now(UTC):%Y-%m-%d}"), rows


class Table:
    """The rows of the table, each with the number of its source.

    Args:
        sources: the sources of an existing table.
        rows: the rows of an existing table by instance type.
    """

    def __init__(
        self, sources: Iterable[tuple[str, str]] = (), rows: Mapping[str, tuple[Any, ...]] | None = None
    ) -> None:
        self._sources = list(sources)
        self._rows = {name: (InstanceType.from_row(row), row[-1]) for name, row in (rows or {}).items()}

    def update(self, source: Source, rows: Rows) -> None:
        """Replace the rows of the types that a source lists."""
        number = len(self._sources)
        self._sources.append(source)
        self._rows |= {name: (row, number) for name, row in rows.items()}

    def render(self) -> str:
        """Return the text of the table's module. Sources without a row are left out."""
        used = sorted({number for _, number in self._rows.values()}, key=lambda number: self._sources[number][::-1])
        lines = [
            '"""Accelerators of EC2 instance types. Written by `python -m authoring.hardware`."""',
            "",
            "SOURCES = (",
            *(f"    {json.dumps(self._sources[number][0])}," for number in used),
            ")",
            f"DAYS = ({', '.join(json.dumps(self._sources[number][1]) for number in used)})",
            '"""The day of each source."""',
            "INSTANCE_TYPES: dict[str, tuple[str, str, str, int, int, int, int, int]] = {",
            *(
                f"    {json.dumps(name)}: ({', '.join(map(json.dumps, (*row.as_row(), used.index(number))))}),"
                for name, (row, number) in sorted(self._rows.items())
            ),
            "}",
            '"""Manufacturer, model, devices (or the part of one), MiB per device, cores per Neuron device, vCPUs,',
            'MiB of the instance, and the number of the source."""',
            "",
        ]
        return "\n".join(lines)


def _committed(checkout: Path, repository: str, path: str) -> Source:
    commit, day = _git(checkout, "log", "-1", "--format=%H %cs", "--", path).split()
    return f"{repository}/blob/{commit}/{path}", day


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--karpenter", type=Path, help="a checkout of Karpenter's AWS provider")
    parser.add_argument("--moto", type=Path, help="a checkout of moto")
    parser.add_argument("--aws", nargs="+", metavar="REGION", help="regions to ask EC2 for")
    options = parser.parse_args()
    if not (options.karpenter or options.moto or options.aws):
        parser.error("pass at least one of --karpenter FOLDER, --moto FOLDER and --aws REGION ...")
    table = Table(
        zip(instance_type_table.SOURCES, instance_type_table.DAYS, strict=True), instance_type_table.INSTANCE_TYPES
    )
    table.update(UNLISTED_SOURCE, UNLISTED_TYPES)
    if options.karpenter:
        for source, rows in karpenter_sources(options.karpenter):
            table.update(source, rows)
    if options.moto:
        table.update(*moto_source(options.moto))
    if options.aws:
        table.update(*aws_source(options.aws))
    TABLE.write_text(table.render())
    return 0


if __name__ == "__main__":
    sys.exit(main())
