"""A cluster's limits: those of Karpenter's node pools, and the resource quotas of namespaces.

They are recorded at the end of each hour. The hour's figures never depend on them.
"""

from datetime import datetime
from decimal import Decimal

from msgspec import Struct


class PoolLimit(Struct, frozen=True):
    """The limit of one node pool for one resource, in units of the resource."""

    node_pool: str
    resource: str
    """As Kubernetes names it: `nvidia.com/gpu`."""
    used: Decimal | None
    """The sum over the pool's nodes, allocated or not; None where Karpenter does not report it."""
    limit: Decimal | None
    """None where the pool has no limit."""


class Quota(Struct, frozen=True):
    """One resource of one ResourceQuota, in units of the resource."""

    namespace: str
    name: str
    resource: str
    """As Kubernetes names it, without `requests.`: `nvidia.com/gpu`."""
    hard: Decimal | None
    used: Decimal | None
    """What pods of the namespace request at that time, as the quota counts it, including pending pods."""


class Limits(Struct, frozen=True):
    """The limits and quotas at the end of one cluster-hour."""

    cluster: str
    hour: datetime
    pools: tuple[PoolLimit, ...] = ()
    quotas: tuple[Quota, ...] = ()
