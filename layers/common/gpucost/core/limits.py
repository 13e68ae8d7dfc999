"""What a cluster lets people have: Karpenter's limits of node pools, and resource quotas of namespaces.

Observed at an hour's end and kept beside the hour's figures, which never depend on them.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class PoolLimit:
    """One node pool and one resource of its nodes, in units of the resource."""

    node_pool: str
    resource: str
    """As Kubernetes names it: `nvidia.com/gpu`."""
    used: Decimal | None
    """By the pool's nodes, whoever holds them; None where Karpenter does not say."""
    limit: Decimal | None
    """None: the pool has none."""


@dataclass(frozen=True, slots=True)
class Quota:
    """One resource of one ResourceQuota, in units of the resource."""

    namespace: str
    name: str
    resource: str
    """As Kubernetes names it, without `requests.`: `nvidia.com/gpu`."""
    hard: Decimal | None
    used: Decimal | None
    """What pods of the namespace request at that moment, as the quota counts it: pending ones, too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What was in force at the end of one cluster-hour."""

    cluster: str
    hour: datetime
    pools: tuple[PoolLimit, ...] = ()
    quotas: tuple[Quota, ...] = ()
