"""MIG plans: whole-GPU workloads that fit slices, and the geometry of their pool, proven by replaying its hours.

A slice saves money only where others take the rest of its GPU, so workloads are advised with a plan of their pool that
frees whole nodes, never alone. Memory peaks are what the exporter saw (`DCGM_FI_DEV_FB_USED`): what reserves all memory
when it starts, as vLLM does, fits nothing smaller until it is told to reserve less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from gpucost.core.metering.gpu_models import profile_share
from gpucost.features.recommendations.history import LookBack, PoolHistory, PoolKey
from gpucost.features.recommendations.measuring import Measured, about_workload, evidence_of, list_ratio_of, saving_of
from gpucost.features.recommendations.model import About, Advice, cents, counted, identity, ratio
from gpucost.features.recommendations.patches import geometry_patch, slice_patch
from gpucost.features.recommendations.pools import (
    about_pool,
    evidence_of_pool,
    gpus_of_node,
    is_priced,
    list_ratio_of_pool,
    newest_hours,
    node_hourly,
    usd_hourly,
)
from gpucost.features.recommendations.rules import mig_layouts as mig
from gpucost.features.recommendations.rules.rightsizing import confidence_of

LEAST_MEMORY = 0.9
"""Part of the GPU-hours whose memory must have been seen."""
_ALONE = 0.999
"""Part of a workload's GPU-hours that must be in one pool."""
_LEAST_USD = 1.0
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Fitting:
    """A workload and the slice that it fits."""

    measured: Measured
    pool: PoolKey
    profile: str


def plan_slices(look: LookBack, measured: Sequence[Measured], taken: set[About]) -> list[Advice]:
    """Plans of pools, each with its workloads.

    Args:
        look: the look-back.
        measured: workloads of which enough is known.
        taken: workloads that something else is advised of.
    """
    by_pool: dict[PoolKey, list[Fitting]] = {}
    for one in measured:
        if about_workload(look.cluster, one.history) in taken:
            continue
        found = fitting(one)
        if found is not None:
            by_pool.setdefault(found.pool, []).append(found)
    return [advice for key in sorted(by_pool) for advice in _pool(look, look.pools[key], by_pool[key])]


def fitting(one: Measured) -> Fitting | None:
    """The slice that a workload's pods fit, each of which has one whole GPU; None where there is none, or too little
    is known of its memory."""
    history = one.history
    held = sum(history.held[one.first :])
    if history.units_per_pod != 1 or history.share != 1.0 or not history.pools or one.now <= 0 or one.pod_peak < 0:
        return None
    ((pool, most),) = history.pools.most_common(1)
    if most < _ALONE * sum(history.pools.values()) or history.memory_known < LEAST_MEMORY * held:
        return None
    profile = mig.fitting_profile(history.key.gpu_model, one.pod_peak, history.memory_peak)
    return None if profile is None else Fitting(one, pool, profile)


def _pool(look: LookBack, pool: PoolHistory, own: Sequence[Fitting]) -> list[Advice]:
    gpus = gpus_of_node(pool)
    model = pool.key.gpu_model
    hours: list[dict[str, int]] = [{} for _ in range(look.hours)]
    wanted: dict[str, int] = {}
    for one in own:
        for place, count in enumerate(one.measured.history.pods):
            if count:
                hours[place][one.profile] = hours[place].get(one.profile, 0) + count
    for hour in hours:
        for profile, count in hour.items():
            wanted[profile] = max(wanted.get(profile, 0), count)
    plan = mig.plan(model, wanted)
    if plan is None or not gpus or not is_priced(look, pool):
        return []
    first = min(one.measured.first for one in own)
    known = [place for place in range(first, look.hours) if look.known[place]]
    proof = mig.replay(plan, [hours[place] for place in known])
    whole = [sum(round(size * count) for size, count in pods) for pods in pool.pods]

    def nodes(place: int) -> tuple[int, int]:
        """Nodes before and after."""
        others = max(0, whole[place] - sum(hours[place].values()))
        # Pods that follow each other within an hour are counted each: no more nodes can go than there are.
        return min(ceil(whole[place] / gpus), pool.nodes[place]), ceil((others + plan.count) / gpus)

    def freed(place: int) -> tuple[float, float]:
        before, after = nodes(place)
        return (before - after) * node_hourly(pool, place), float((before - after) * gpus)

    saving = saving_of(look, first, freed, pool.cash.share(), list_ratio_of_pool(look, pool), pool.unpriced)
    if proof.waited or saving.usd < _LEAST_USD:
        return []
    newest = newest_hours(look, first)
    before, after = (sum(nodes(place)[which] for place in newest) / max(1, len(newest)) for which in (0, 1))
    if before <= after:
        return []
    about = about_pool(look, pool)
    layouts = [list(geometry) for geometry, count in sorted(plan.gpus.items()) for _ in range(count)]
    layouts += [[] for _ in range(-len(layouts) % gpus)]
    facts = {
        "slices": ", ".join(f"{count} × {profile}" for profile, count in sorted(plan.demand.items())),
        "replayed": f"{proof.hours} hours, {proof.waited} pod-hours waited; at most {float(proof.tightest):.0%} in use",
        "GPUs": f"{plan.count}, of which {float(plan.stranded):.2f} stay unused or stranded",
        "workloads": ", ".join(sorted(one.measured.history.key.name for one in own)),
    }
    if others := mig.other_names(model):
        facts["names"] = f"as in NVIDIA's guide; some drivers say {others} instead (nvidia-smi mig -lgip)"
    found = Advice(
        "mig-geometry", about,
        f"Slice {plan.count} GPUs of node pool {pool.key.node_pool or '(none)'} for {len(own)} workloads that fit MIG "
        f"slices: {counted(before)} {pool.key.instance_type} nodes become {counted(after)}",
        saving,
        evidence_of_pool(look, pool, first, facts),
        "medium", "medium", "One request has a slice's compute alone: it may take as many times longer.", "high",
        geometry_patch(pool.key.node_pool, [layouts[at : at + gpus] for at in range(0, len(layouts), gpus)]),
        cents(before), cents(after),
        cents(usd_hourly(look, pool, first)),
    )  # fmt: skip
    return [found, *(_workload(look, one, identity("mig-geometry", about)) for one in own)]


def _workload(look: LookBack, one: Fitting, plan_id: str) -> Advice:
    history, about = one.measured.history, about_workload(look.cluster, one.measured.history)
    share = float(profile_share(one.profile, history.key.gpu_model) or 1)

    def freed(place: int) -> tuple[float, float]:
        return history.usd[place] * (1 - share), history.held[place] * (1 - share)

    saving = saving_of(
        look, one.measured.first, freed, history.cash.share(), list_ratio_of(look, history), history.unpriced
    )
    facts = {
        "profile": f"{one.profile}, {share:.3f} of a GPU",
        "busiest pod": f"{one.measured.pod_peak:.1%} of a whole GPU in its busiest hour (an hour's mean)",
        "GPU memory": f"{history.memory_peak / _GIB:.1f} GiB at most",
    }
    return Advice(
        "mig-slice", about,
        f"Let {about.workload_kind} {about.namespace}/{about.workload} request a {one.profile} slice in place of a GPU",
        saving, evidence_of(look, one.measured, facts), confidence_of(one.measured), "medium",
        "One request has a slice's compute alone: it may take as many times longer.", "medium",
        slice_patch(about, one.profile), cents(one.measured.now), ratio(one.measured.now * share) or cents(0),
        cents(one.measured.usd_hourly), part_of=plan_id,
    )  # fmt: skip
