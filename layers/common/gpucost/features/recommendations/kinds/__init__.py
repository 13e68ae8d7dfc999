"""The kinds of recommendations, each in a module of its own. `RECOMMENDATION_KINDS` is the only list of them."""

from typing import TYPE_CHECKING, Literal

from gpucost.features.recommendations.kinds.add_gpus import AddGpus
from gpucost.features.recommendations.kinds.base import RecommendationKind
from gpucost.features.recommendations.kinds.cheaper_gpus import CheaperGpus
from gpucost.features.recommendations.kinds.commitment import Commitment
from gpucost.features.recommendations.kinds.consolidate import Consolidate
from gpucost.features.recommendations.kinds.fewer_gpus import FewerGpus
from gpucost.features.recommendations.kinds.idle import Idle
from gpucost.features.recommendations.kinds.mig_geometry import MigGeometry
from gpucost.features.recommendations.kinds.mig_slice import MigSlice
from gpucost.features.recommendations.kinds.off_hours import OffHours
from gpucost.features.recommendations.kinds.pending import Pending
from gpucost.features.recommendations.kinds.sharing import Sharing
from gpucost.features.recommendations.kinds.spot import Spot

RECOMMENDATION_KINDS: tuple[type[RecommendationKind], ...] = (
    Idle,
    FewerGpus,
    CheaperGpus,
    MigSlice,
    MigGeometry,
    Sharing,
    Consolidate,
    AddGpus,
    Pending,
    OffHours,
    Spot,
    Commitment,
)
"""In the order of the documentation. If two save the same for a subject, it gets the first."""
KINDS_BY_NAME = {kind.name: kind for kind in RECOMMENDATION_KINDS}

if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[tuple(KINDS_BY_NAME)]
