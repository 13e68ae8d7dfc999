"""MIG geometries of pools in which workloads with whole GPUs fit slices, verified by replaying the pool's hours."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil

from gpucost.features.recommendations.history import LookBack, PoolHourlySeries, PoolKey
from gpucost.features.recommendations.kinds.base import PoolPlan, RecommendationKind, ReviewedCluster, single_line
from gpucost.features.recommendations.kinds.mig_slice import (
    RISK,
    MigSlice,
    SliceFit,
    fit_slice,
    other_profile_names,
    plan_geometries,
    replay_plan,
)
from gpucost.features.recommendations.measuring import MIN_MONTHLY_SAVING_USD, workload_subject
from gpucost.features.recommendations.model import RecommendationContent, RecommendationSubject, round_cents
from gpucost.features.recommendations.pools import (
    enough_nodes_fact,
    estimate_pool_saving,
    fewer_nodes_phrase,
    gpus_per_node,
    has_enough_prices,
    mean_node_cost,
    mean_pool_cost,
    newest_hour_indexes,
    pool_evidence,
    pool_subject,
)


class MigGeometry(RecommendationKind):
    """Slice GPUs of a pool, so that it needs fewer nodes."""

    name = "mig-geometry"
    title = "Change the MIG layout"
    when = "workloads of a pool hold whole GPUs but fit MIG slices, and whole nodes would be removed"
    change = "a geometry that needs the fewest GPUs, as a mig-parted configuration"
    verified = "nodes, for the pods that still exist"
    not_verified = "nodes that were removed with their pods"

    @classmethod
    def plans(cls, cluster: ReviewedCluster, excluded: set[RecommendationSubject]) -> Iterator[PoolPlan]:
        """Plan a geometry for each pool, and a slice for each of its workloads that fit one."""
        look_back = cluster.look_back
        by_pool: dict[PoolKey, list[SliceFit]] = {}
        for measures in cluster.measured:
            if workload_subject(look_back.cluster, measures.history) in excluded:
                continue
            slice_fit = fit_slice(measures)
            if slice_fit is not None:
                by_pool.setdefault(slice_fit.pool, []).append(slice_fit)
        for key in sorted(by_pool):
            plan = cls._plan(look_back, look_back.pools[key], by_pool[key])
            if plan is not None:
                yield plan

    @classmethod
    def _plan(cls, look_back: LookBack, pool: PoolHourlySeries, fits: Sequence[SliceFit]) -> PoolPlan | None:
        gpus = gpus_per_node(pool)
        model = pool.key.gpu_model
        hours: list[dict[str, int]] = [{} for _ in range(look_back.hours)]
        demand: dict[str, int] = {}
        for fit in fits:
            for index, count in enumerate(fit.measures.history.pod_counts):
                if count:
                    hours[index][fit.profile] = hours[index].get(fit.profile, 0) + count
        for hour in hours:
            for profile, count in hour.items():
                demand[profile] = max(demand.get(profile, 0), count)
        plan = plan_geometries(model, demand)
        if plan is None or not gpus or not has_enough_prices(look_back, pool):
            return None
        first = min(fit.measures.first_held_index for fit in fits)
        hours_with_figures = [index for index in range(first, look_back.hours) if look_back.has_figures[index]]
        replayed = replay_plan(plan, [hours[index] for index in hours_with_figures])
        gpus_wanted = [sum(round(size * count) for size, count in pods) for pods in pool.pod_sizes]

        def nodes(index: int) -> tuple[int, int]:
            """Nodes before and after the change."""
            others = max(0, gpus_wanted[index] - sum(hours[index].values()))
            # Pods that run one after another in an hour count separately, so there are at most the nodes there were.
            return min(ceil(gpus_wanted[index] / gpus), pool.node_counts[index]), ceil((others + plan.gpu_count) / gpus)

        def freed(index: int) -> tuple[float, float]:
            before, after = nodes(index)
            return (before - after) * mean_node_cost(pool, index), float((before - after) * gpus)

        saving = estimate_pool_saving(look_back, pool, first, freed)
        if replayed.pod_hours_waited or saving.usd < MIN_MONTHLY_SAVING_USD:
            return None
        newest = newest_hour_indexes(look_back, first)
        before, after = (sum(nodes(index)[position] for index in newest) / max(1, len(newest)) for position in (0, 1))
        if before <= after:
            return None
        pairs = [nodes(index) for index in newest]
        befores, afters = [pair[0] for pair in pairs], [min(pair) for pair in pairs]
        title = (
            f"Slice {plan.gpu_count} GPU{'s' if plan.gpu_count > 1 else ''} of node pool "
            f"{pool.key.node_pool or '(none)'}, and run it {fewer_nodes_phrase(befores, afters)}"
        )
        layouts = [list(geometry) for geometry, count in sorted(plan.gpus_by_geometry.items()) for _ in range(count)]
        layouts += [[] for _ in range(-len(layouts) % gpus)]
        facts = {
            "slices": ", ".join(f"{count} × {profile}" for profile, count in sorted(plan.demand.items())),
            "replay": f"{replayed.replayed_hours} hours, {replayed.pod_hours_waited} pod-hours waited; "
            f"at most {float(replayed.peak_usage):.0%} in use",
            "GPUs": f"{plan.gpu_count}, of which {float(plan.unused_gpus):.2f} stay unused or stranded",
            "nodes": f"{enough_nodes_fact(befores, afters)} of the newest day",
            "workloads": ", ".join(sorted(fit.measures.history.key.name for fit in fits)),
        }
        if others := other_profile_names(model):
            facts["names"] = f"as in NVIDIA's guide; some drivers use {others} instead (nvidia-smi mig -lgip)"
        plan_content = RecommendationContent(
            kind=cls.name,
            subject=pool_subject(look_back, pool),
            title=title,
            summary=f"{title}: {len(fits)} workload{'s fit' if len(fits) > 1 else ' fits'} MIG slices",
            saving=saving,
            evidence=pool_evidence(look_back, pool, first, facts),
            confidence="medium",
            risk="medium",
            risk_note=RISK,
            effort="high",
            patch=geometry_patch(
                pool.key.node_pool, [layouts[start : start + gpus] for start in range(0, len(layouts), gpus)]
            ),
            current_gpus=round_cents(before),
            recommended_gpus=round_cents(after),
            usd_hourly=round_cents(mean_pool_cost(look_back, pool, first)),
        )
        slices = tuple(MigSlice.recommend_slice(look_back, fit, plan_content.id) for fit in fits)
        return PoolPlan(plan_content, frozenset(content.subject for content in slices), slices)


def geometry_patch(node_pool: str, layouts: Sequence[Sequence[Sequence[str]]]) -> str:
    """A configuration of NVIDIA's mig-parted, and the node labels that apply it.

    Args:
        node_pool: the pool's name.
        layouts: for each node, the profiles of each GPU; without profiles it stays a whole GPU.
    """
    names: dict[tuple[tuple[str, ...], ...], str] = {}
    counts: Counter[str] = Counter()
    lines = ["# config.yaml of the MIG manager (mig-parted)", "version: v1", "mig-configs:"]
    for layout in layouts:
        gpu_layouts = tuple(tuple(gpu) for gpu in layout)
        if gpu_layouts not in names:
            names[gpu_layouts] = f"gpucost-{len(names) + 1}"
            lines.append(f"  {names[gpu_layouts]}:")
            for number, gpu in enumerate(gpu_layouts):
                devices = ", ".join(f'"{profile}": {count}' for profile, count in sorted(Counter(gpu).items()))
                mig_setting = f"true, mig-devices: {{{devices}}}" if gpu else "false"
                lines.append(f"    - {{devices: [{number}], mig-enabled: {mig_setting}}}")
        counts[names[gpu_layouts]] += 1
    pool = single_line(node_pool)
    lines += [
        f"# {count} node(s) of pool {pool}: kubectl label node NAME nvidia.com/mig.config={name} --overwrite"
        for name, count in counts.items()
    ]
    return "\n".join(lines) + "\n"
