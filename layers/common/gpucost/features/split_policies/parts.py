"""The comparison of split policies, made when it is first used."""

from functools import cached_property
from typing import TYPE_CHECKING

from gpucost.pipeline.parts import PipelineParts

if TYPE_CHECKING:
    from gpucost.features.split_policies.comparison import SplitComparer


class SplitPolicyParts(PipelineParts):
    """The comparison of split policies, with the pipeline's prices."""

    @cached_property
    def split_comparer(self) -> "SplitComparer":
        """For `functions/api` and `gpucost hours compare-splits`."""
        from gpucost.features.split_policies.comparison import SplitComparer

        return SplitComparer(self.settings_store, self.ledger, self.pricer, self.clock)
