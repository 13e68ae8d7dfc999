"""PromQL for the physical GPUs in one unit of a resource, from tables, node labels and capacity.

The tables are those of the ledger (`gpucost.core.metering.gpu_models`), so both know the same hardware.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from gpucost.core.metering.accelerators import ACCELERATORS, AMD, NEURON
from gpucost.core.metering.gpu_models import (
    MIG_GPUS,
    USUAL_COMPUTE_DIES,
    MigGpu,
    compute_share,
    partitions_per_gpu,
    profile_share,
)
from gpucost.core.metering.gpu_shares import AMD_GPU, GPU, GPU_SHARED, MIG_PREFIX, NEURON_CORE, NEURON_DEVICES
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.metering.kubernetes_labels import AMD_PARTITION_LABEL, GPU_PRODUCT_LABEL
from gpucost_cli.rules.promql import SelectorBuilder, equals, matches

OTHER_ACCELERATORS = tuple(vendor.resource_pattern for vendor in ACCELERATORS if vendor is not NEURON)
"""Regular expressions of the resources of AMD and Intel."""
(PRODUCT,) = GPU_PRODUCT_LABEL.exported_names
_PROFILE_SUFFIXES = "(_(me|gfx|all))*"
_COMPUTE_SLICES = 7


def instance_types_by_gpu_count() -> Mapping[Fraction, list[str]]:
    """Group instance types by their number of GPUs or Neuron devices."""
    types_by_count: dict[Fraction, list[str]] = {}
    devices = {name: count for name, (count, _) in NEURON_OF_INSTANCE.items()}
    for name, count in {**GPUS_OF_INSTANCE, **devices}.items():
        types_by_count.setdefault(Fraction(count), []).append(name)
    return {count: sorted(names) for count, names in sorted(types_by_count.items())}


def gpus_per_unit_vectors(capacity: SelectorBuilder, labels: SelectorBuilder, physical: str) -> Iterator[str]:
    """Yield PromQL expressions of the physical GPUs in one unit, by node and resource. The first with a value counts.

    Args:
        capacity: builds a vector of units by node and resource, from matchers.
        labels: builds a selector of nodes' labels, from matchers.
        physical: a vector of physical GPUs by node.
    """
    yield from _mig_resources(capacity, labels)
    whole = f"{capacity(equals('resource', GPU))} * 0"
    yield f"{whole} + 1 and on (node) {capacity(matches('resource', MIG_PREFIX + '.+'))}"
    for share, products in _mig_products().items():
        yield f"{whole} + {_float_literal(share)} and on (node) {labels(_product_matcher(products))}"
    yield from _neuron_devices_per_unit(capacity, physical)
    yield from accelerators_per_unit_vectors(capacity, labels)
    nvidia = capacity(matches("resource", GPU, GPU_SHARED))
    yield f"clamp_max(1 / ({nvidia} / on (node) group_left () {physical}), 1)"


def _mig_resources(capacity: SelectorBuilder, labels: SelectorBuilder) -> Iterator[str]:
    """Yield the shares of MIG resources: by GPU model, equal on every model, and estimated."""
    profiles = sorted({profile for gpu in MIG_GPUS for profile in gpu.memory_slices_by_name})
    everywhere: dict[Fraction, list[str]] = {}
    by_model: dict[Fraction, list[tuple[str, MigGpu]]] = {}
    for profile in profiles:
        share = profile_share(profile, "")
        if share is not None:
            everywhere.setdefault(share, []).append(profile)
            continue
        for gpu in MIG_GPUS:
            model_share = profile_share(profile, " ".join(gpu.model_name_parts))
            if model_share is not None and profile in gpu.memory_slices_by_name:
                by_model.setdefault(model_share, []).append((profile, gpu))
    for share, profiles_and_models in sorted(by_model.items()):
        for profile in sorted({profile for profile, _ in profiles_and_models}):
            models = [_model_pattern(gpu) for other, gpu in profiles_and_models if other == profile]
            vector = f"{capacity(_mig_resource_matcher([profile]))} * 0 + {_float_literal(share)}"
            yield f"{vector} and on (node) {labels(_product_matcher(models))}"
    for share, names in sorted(everywhere.items()):
        yield f"{capacity(_mig_resource_matcher(names))} * 0 + {_float_literal(share)}"
    for slices in range(1, _COMPUTE_SLICES + 1):  # profiles in no table: estimated by compute slices, as in the ledger
        unknown = capacity(matches("resource", f"{MIG_PREFIX}{slices}g_.+"), 'resource!~".+_shared"')
        yield f"{unknown} * 0 + {_float_literal(Fraction(slices, _COMPUTE_SLICES))}"


def _mig_products() -> Mapping[Fraction, list[str]]:
    """Group regular expressions of product labels under MIG's strategy single by the share of their slices."""
    products_by_share: dict[Fraction, list[str]] = {}
    for gpu in MIG_GPUS:
        for profile in gpu.memory_slices_by_name:
            share = profile_share(profile, " ".join(gpu.model_name_parts))
            if share is not None:
                products_by_share.setdefault(share, []).append(
                    f"{_model_pattern(gpu)}-mig-{re.escape(profile)}([+.-](me|gfx|all))*"
                )
    return products_by_share


def _neuron_devices_per_unit(capacity: SelectorBuilder, physical: str) -> Iterator[str]:
    """Yield the shares of Neuron devices, and of cores: logical cores are as many as the node is configured to have."""
    devices = capacity(matches("resource", *NEURON_DEVICES))
    yield f"{devices} * 0 + 1"
    cores = capacity(equals("resource", NEURON_CORE))
    for of_node in (f"max by (node) ({devices})", physical):
        yield f"clamp_max(1 / ({cores} / on (node) group_left () {of_node}), 1)"


def accelerators_per_unit_vectors(capacity: SelectorBuilder, labels: SelectorBuilder) -> Iterator[str]:
    """Yield PromQL expressions of the physical devices in one unit of AMD's and Intel's resources.

    `amd.com/gpu` is a partition where AMD's node labeller says so. In mode CPX, eight partitions are a GPU.
    """
    (partition_label,) = AMD_PARTITION_LABEL.exported_names
    for compute in ("dpx", "tpx", "qpx", "cpx"):
        share = _float_literal(Fraction(1, partitions_per_gpu(compute, "") or USUAL_COMPUTE_DIES))
        yield f"{capacity(matches('resource', f'{AMD.resource_prefix}{compute}_.+'))} * 0 + {share}"
        labeled = labels(matches(partition_label, f"{compute}_.+"))
        yield f"{capacity(equals('resource', AMD_GPU))} * 0 + {share} and on (node) {labeled}"
    yield f"{capacity(matches('resource', *OTHER_ACCELERATORS))} * 0 + 1"


def instance_type_matcher(names: Iterable[str]) -> str:
    """Return a matcher of series with one of these values of the label `instance_type`."""
    return matches("instance_type", *(re.escape(name) for name in sorted(names)))


def _mig_resource_matcher(profiles: Iterable[str]) -> str:
    names = "|".join(profile.replace(".", "_") for profile in profiles)
    return matches("resource", f"{MIG_PREFIX}({names}){_PROFILE_SUFFIXES}")


def _product_matcher(models: Iterable[str]) -> str:
    return matches(PRODUCT, f"(?i)({'|'.join(models)})")


def _model_pattern(gpu: MigGpu) -> str:
    """Match all parts of a model's name in order. A name starts a word, so that `h200` does not match `gh200`."""
    return "(.*[^a-z])?" + ".*".join(re.escape(part) for part in gpu.model_name_parts) + ".*"


def _float_literal(share: Fraction) -> str:
    """Write a share as an exact PromQL float literal."""
    return repr(float(share))


def profiles_by_share() -> dict[Fraction, str]:
    """A regular expression of MIG profiles for each share of a GPU."""
    profiles: dict[Fraction, list[str]] = {}
    for profile in sorted({profile for gpu in MIG_GPUS for profile in gpu.memory_slices_by_name}):
        share = profile_share(profile, "") or compute_share(profile)
        if share is not None:
            profiles.setdefault(share, []).append(re.escape(profile))
    return {share: "|".join(names) for share, names in sorted(profiles.items())}
