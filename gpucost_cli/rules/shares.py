"""Physical GPUs in one unit of a resource, as static rules can tell: from tables, labels of nodes, and capacity.

The tables are the product's own (`gpucost.core.metering.gpu_models`), so that rules and ledger know the same hardware.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from gpucost.core.metering.gpu_models import GPUS_OF_INSTANCE, MIG_GPUS, NEURON_OF_INSTANCE, MigGpu, profile_share
from gpucost.core.metering.gpu_shares import GPU, GPU_SHARED, MIG_PREFIX, NEURON_CORE, NEURON_DEVICES
from gpucost.core.metering.kubernetes_labels import GPU_PRODUCT
from gpucost_cli.rules.promql import Select, equals, matches

(PRODUCT,) = GPU_PRODUCT.exported
_VARIANTS = "(_(me|gfx|all))*"
_COMPUTE_SLICES = 7


def physical_gpus() -> Mapping[Fraction, list[str]]:
    """Instance types by how many GPUs or Neuron devices they have."""
    found: dict[Fraction, list[str]] = {}
    devices = {name: count for name, (count, _) in NEURON_OF_INSTANCE.items()}
    for name, count in {**GPUS_OF_INSTANCE, **devices}.items():
        found.setdefault(Fraction(count), []).append(name)
    return {count: sorted(names) for count, names in sorted(found.items())}


def unit_branches(capacity: Select, labels: Select, info: Select, physical: str) -> Iterator[str]:
    """Expressions of physical GPUs per unit by node and resource; of each pair the first that tells it counts.

    Args:
        capacity: makes a vector of units by node and resource, from matchers.
        labels: makes a selector of nodes' labels, from matchers.
        info: makes a selector of the recorded facts about nodes, from matchers.
        physical: a vector of physical GPUs by node.
    """
    yield from _mig_resources(capacity, labels)
    whole = f"{capacity(equals('resource', GPU))} * 0"
    yield f"{whole} + 1 and on (node) {capacity(matches('resource', MIG_PREFIX + '.+'))}"
    for share, products in _mig_products().items():
        yield f"{whole} + {_number(share)} and on (node) {labels(_product(products))}"
    yield from _neuron(capacity, info)
    nvidia = capacity(matches("resource", GPU, GPU_SHARED))
    yield f"clamp_max(1 / ({nvidia} / on (node) group_left () {physical}), 1)"


def _mig_resources(capacity: Select, labels: Select) -> Iterator[str]:
    """Slices under their own names: those that are the same share everywhere, those by model, and any other."""
    profiles = sorted({profile for gpu in MIG_GPUS for profile in gpu.profiles})
    everywhere: dict[Fraction, list[str]] = {}
    by_model: dict[Fraction, list[tuple[str, MigGpu]]] = {}
    for profile in profiles:
        share = profile_share(profile, "")
        if share is not None:
            everywhere.setdefault(share, []).append(profile)
            continue
        for gpu in MIG_GPUS:
            own = profile_share(profile, " ".join(gpu.models))
            if own is not None and profile in gpu.profiles:
                by_model.setdefault(own, []).append((profile, gpu))
    for share, some in sorted(by_model.items()):
        for profile in sorted({profile for profile, _ in some}):
            models = [_model(gpu) for other, gpu in some if other == profile]
            vector = f"{capacity(_resources([profile]))} * 0 + {_number(share)}"
            yield f"{vector} and on (node) {labels(_product(models))}"
    for share, names in sorted(everywhere.items()):
        yield f"{capacity(_resources(names))} * 0 + {_number(share)}"
    for slices in range(1, _COMPUTE_SLICES + 1):  # in no table: by compute slices, as the ledger estimates it
        unknown = capacity(matches("resource", f"{MIG_PREFIX}{slices}g_.+"), 'resource!~".+_shared"')
        yield f"{unknown} * 0 + {_number(Fraction(slices, _COMPUTE_SLICES))}"


def _mig_products() -> Mapping[Fraction, list[str]]:
    """Product labels under MIG's strategy single, as regular expressions, by the share of their slices."""
    found: dict[Fraction, list[str]] = {}
    for gpu in MIG_GPUS:
        for profile in gpu.profiles:
            share = profile_share(profile, " ".join(gpu.models))
            if share is not None:
                found.setdefault(share, []).append(f"{_model(gpu)}-mig-{re.escape(profile)}([+.-](me|gfx|all))*")
    return found


def _neuron(capacity: Select, info: Select) -> Iterator[str]:
    yield f"{capacity(matches('resource', *NEURON_DEVICES))} * 0 + 1"
    cores = capacity(equals("resource", NEURON_CORE))
    by_cores: dict[int, list[str]] = {}
    for name, (_, count) in NEURON_OF_INSTANCE.items():
        by_cores.setdefault(count, []).append(name)
    for count, names in sorted(by_cores.items()):
        yield f"{cores} * 0 + {_number(Fraction(1, count))} and on (node) {info(instance_types(names))}"


def instance_types(names: Iterable[str]) -> str:
    """A matcher of the recorded facts about nodes."""
    return matches("instance_type", *(re.escape(name) for name in sorted(names)))


def _resources(profiles: Iterable[str]) -> str:
    names = "|".join(profile.replace(".", "_") for profile in profiles)
    return matches("resource", f"{MIG_PREFIX}({names}){_VARIANTS}")


def _product(models: Iterable[str]) -> str:
    return matches(PRODUCT, f"(?i)({'|'.join(models)})")


def _model(gpu: MigGpu) -> str:
    """All parts of a model's name, in order; a name that another model's contains begins a word (`h200`, `gh200`)."""
    return "(.*[^a-z])?" + ".*".join(re.escape(part) for part in gpu.models) + ".*"


def _number(share: Fraction) -> str:
    """A share as PromQL writes it, as exact as a float is."""
    return repr(float(share))
