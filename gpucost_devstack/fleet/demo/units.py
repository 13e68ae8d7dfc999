"""The demo's business units and their namespaces. A large fleet has several regional copies of each."""

from dataclasses import dataclass

GPUS_OF_A_COPY = 84
"""GPUs and Neuron devices of the fleet at scale 1, on a usual day."""
REGIONAL_SUFFIXES = ("", "emea", "apac", "latam")


@dataclass(frozen=True)
class BusinessUnit:
    """A business unit, with its monthly budget and its namespaces."""

    name: str
    monthly_usd: int
    namespaces: tuple[str, ...]
    consumers: tuple[str, ...] = ()
    """How the servers of others know who sends its requests."""


BUSINESS_UNITS = (
    BusinessUnit("assistant", 60_000, ("chat", "chat-training"), ("assistant-*",)),
    BusinessUnit("search", 5_000, ("search",), ("search-*",)),
    BusinessUnit("ads-ranking", 4_000, ("ads-ranking",)),
    BusinessUnit("content-moderation", 3_500, ("moderation",)),
    BusinessUnit("fraud-detection", 3_000, ("fraud",)),
    BusinessUnit("speech", 4_000, ("speech",)),
    BusinessUnit("foundation-models", 12_500, ("pretraining",)),
    BusinessUnit("vision-research", 12_000, ("vision",)),
    BusinessUnit("data-science", 3_500, ("notebooks",)),
    BusinessUnit("media", 900, ("render",)),
    BusinessUnit("data-platform", 600, ("pipelines",)),
    BusinessUnit("developer-platform", 2_000, ("dev",), ("developer-*",)),
    BusinessUnit("demand-forecasting", 900, ("forecasting",)),
    BusinessUnit("robotics", 1_600, ("simulation",)),
)


def copies_of(scale: int) -> int:
    """How many copies of the fleet have about as many GPUs as asked for. Scale 1 is one copy."""
    if scale < 1:
        raise ValueError(f"scale: {scale} is less than 1. Pass 1, or the number of GPUs, for example 1000")
    return max(1, round(scale / GPUS_OF_A_COPY))


@dataclass(frozen=True)
class Copy:
    """One copy of the fleet: its own nodes, and the namespaces and workloads of a region."""

    number: int

    def namespace(self, name: str) -> str:
        """A namespace of this copy's region."""
        region = REGIONAL_SUFFIXES[self.number % len(REGIONAL_SUFFIXES)]
        return f"{name}-{region}" if region else name

    def workload(self, name: str) -> str:
        """A workload's name: several copies share a region's namespaces."""
        shard = self.number // len(REGIONAL_SUFFIXES)
        return f"{name}-{shard + 1}" if shard else name


def business_units(scale: int) -> list[BusinessUnit]:
    """The business units of a fleet, with the budgets of their copies."""
    copies = [Copy(number) for number in range(copies_of(scale))]
    by_name: dict[str, BusinessUnit] = {}
    for unit in BUSINESS_UNITS:
        for copy in copies:
            name = copy.namespace(unit.name)
            budget = unit.monthly_usd + (by_name[name].monthly_usd if name in by_name else 0)
            # The consumers of all regions are those of the first.
            consumers = unit.consumers if name == unit.name else ()
            by_name[name] = BusinessUnit(name, budget, tuple(map(copy.namespace, unit.namespaces)), consumers)
    return list(by_name.values())
