"""Shards of a query's series, for queries whose whole result is too large for one response (AMP: 50 MB).

PromQL has no hash function. Shards are selected by the last character of a label that is evenly distributed: uids and
UUIDs end in hexadecimal digits, names of nodes and ReplicaSets in digits and letters. Other endings are in the last
shard.
"""

from collections.abc import Sequence

from msgspec import Struct

_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Shard(Struct, frozen=True):
    """Series whose label ends in one of some characters, or with `includes_others` in a character of no shard."""

    endings: str = ""
    includes_others: bool = False

    def matcher(self, label: str) -> str:
        """The PromQL matcher that selects the shard by a label."""
        endings = f".*[{self.endings}{self.endings.upper()}]"
        if not self.includes_others:
            return f'{label}=~"{endings}"'
        # An empty or missing label has no last character. It belongs to this shard only.
        return f'{label}=~"({endings}|.*[^0-9a-zA-Z])?"'


ALL_SERIES = Shard()


def make_shards(count: int) -> Sequence[Shard]:
    """Divide all series into up to 36 disjoint shards."""
    return [Shard(_CHARACTERS[offset::count], includes_others=offset == count - 1) for offset in range(count)]
