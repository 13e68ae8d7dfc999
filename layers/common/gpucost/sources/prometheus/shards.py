"""Parts of a query's series, for where all of them would be too much for one answer (AMP: 50 MB).

PromQL knows no hash, so parts are told by the last character of a label that is spread evenly there: uids and UUIDs
end in hexadecimal digits, nodes' and ReplicaSets' names in digits and letters. What ends otherwise is in the last part.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Shard:
    """Series whose label ends in one of some characters; with `others`, those that end in none that any shard names."""

    endings: str = ""
    includes_others: bool = False

    def matcher(self, label: str) -> str:
        """For a selector."""
        own = f".*[{self.endings}{self.endings.upper()}]"
        if not self.includes_others:
            return f'{label}=~"{own}"'
        # An empty or missing label ends in nothing: it belongs to this part, and to no other.
        return f'{label}=~"({own}|.*[^0-9a-zA-Z])?"'


ALL_SERIES = Shard()


def make_shards(count: int) -> Sequence[Shard]:
    """A number of parts, up to 36, that together are everything and share nothing."""
    return [Shard(_CHARACTERS[at::count], includes_others=at == count - 1) for at in range(count)]
