"""MIG slices for workloads whose pods hold whole GPUs but would fit a slice.

A slice saves money only if other pods use the rest of its GPU. So slices are recommended only with a plan of their pool
that frees whole nodes. Memory peaks come from the exporter (`DCGM_FI_DEV_FB_USED`). A workload that reserves all memory
at its start, such as vLLM, fits no slice until it is configured to reserve less.
"""

from shlex import quote

from msgspec import Struct

from gpucost.core.metering.gpu_models import profile_share
from gpucost.features.recommendations.history import LookBack, PoolKey
from gpucost.features.recommendations.kinds.base import RecommendationKind, remaining_work
from gpucost.features.recommendations.measuring import (
    GIB,
    MIN_MEMORY_SHARE,
    WorkloadMeasures,
    confidence_level,
    estimate_workload_saving,
    workload_evidence,
    workload_subject,
)
from gpucost.features.recommendations.mig_layouts import fitting_profile
from gpucost.features.recommendations.model import (
    RecommendationContent,
    RecommendationSubject,
    round_cents,
    round_ratio,
)
from gpucost.features.recommendations.patches import API_VERSION_OF_SCALABLE_KIND, single_line
from gpucost.features.recommendations.subject_hours import SubjectHour

_SINGLE_POOL_SHARE = 0.999
"""Part of a workload's GPU-hours that must be in one pool."""
RISK = "A request runs on the compute of one slice, so it may take proportionally longer."


class SliceFit(Struct, frozen=True):
    """A workload, and the MIG profile that it fits."""

    measures: WorkloadMeasures
    pool: PoolKey
    profile: str


class MigSlice(RecommendationKind):
    """Let a workload request a slice of its pool's geometry."""

    name = "mig-slice"
    title = "Use a MIG slice"
    when = (
        "the workload is part of a plan for `mig-geometry`: its busiest pod uses at most 70% of the slice's compute "
        "and 1/1.1 of its memory"
    )
    change = "request the slice"
    verified = "what each remaining pod released"
    not_verified = "pods that are gone"
    keeps_resource = False

    @classmethod
    def recommend_slice(cls, look_back: LookBack, fit: SliceFit, plan_id: str) -> RecommendationContent:
        """Recommend the slice that a workload fits, as part of its pool's plan."""
        history, subject = fit.measures.history, workload_subject(look_back.cluster, fit.measures.history)
        share = float(profile_share(fit.profile, history.key.gpu_model) or 1)

        def freed(index: int) -> tuple[float, float]:
            return history.cost_usd[index] * (1 - share), history.held_gpu_hours[index] * (1 - share)

        saving = estimate_workload_saving(look_back, fit.measures, freed, history.spend.avoidable_share())
        title = f"Let {subject.workload_name} request a {fit.profile} slice instead of a GPU"
        facts = {
            "profile": f"{fit.profile}, {share:.3f} of a GPU",
            "busiest pod": f"{fit.measures.pod_peak_utilization:.1%} of a whole GPU in its busiest hour "
            "(an hour's mean)",
            "GPU memory": f"{history.memory_peak_bytes / GIB:.1f} GiB at most",
        }
        return RecommendationContent(
            kind=cls.name,
            subject=subject,
            title=title,
            summary=f"{title}: its busiest pod uses {fit.measures.pod_peak_utilization:.0%} of the GPU",
            saving=saving,
            evidence=workload_evidence(look_back, fit.measures, facts),
            confidence=confidence_level(fit.measures),
            risk="medium",
            risk_note=RISK,
            effort="medium",
            patch=slice_patch(subject, fit.profile),
            current_gpus=round_cents(fit.measures.current_gpus),
            recommended_gpus=round_ratio(fit.measures.current_gpus * share) or round_cents(0),
            usd_hourly=round_cents(fit.measures.usd_hourly),
            part_of=plan_id,
        )

    @classmethod
    def expected_amount(cls, content: RecommendationContent, current: SubjectHour, before: SubjectHour) -> float:
        """Of what it held, the part of the pods that are still there."""
        return before.held * remaining_work(current, before) if current.held else 0.0


def fit_slice(measures: WorkloadMeasures) -> SliceFit | None:
    """Find the slice that fits a workload's pods, each of which holds one whole GPU.

    Returns:
        None if there is none, or if its memory is not known well enough.
    """
    history = measures.history
    held = sum(history.held_gpu_hours[measures.first_held_index :])
    if (
        history.units_per_pod != 1
        or history.gpu_share != 1.0
        or not history.gpu_millihours_by_pool
        or measures.current_gpus <= 0
        or measures.pod_peak_utilization < 0
    ):
        return None
    ((pool, largest_pool_hours),) = history.gpu_millihours_by_pool.most_common(1)
    if largest_pool_hours < _SINGLE_POOL_SHARE * sum(history.gpu_millihours_by_pool.values()):
        return None
    if history.memory_observed_gpu_hours < MIN_MEMORY_SHARE * held:
        return None
    profile = fitting_profile(history.key.gpu_model, measures.pod_peak_utilization, history.memory_peak_bytes)
    return None if profile is None else SliceFit(measures, pool, profile)


def slice_patch(subject: RecommendationSubject, profile: str) -> str:
    """Commands that let pods request a MIG slice instead of a whole GPU."""
    if subject.workload_kind not in API_VERSION_OF_SCALABLE_KIND:
        return ""
    name = quote(f"{subject.workload_kind.lower()}/{subject.workload}")
    limits = quote(f"--limits={subject.resource}=0,nvidia.com/mig-{profile}=1")
    return (
        f"# the container that has {single_line(subject.resource)}: add -c NAME if there are several\n"
        f"kubectl -n {quote(subject.namespace)} set resources {name} {limits}\n"
    )
