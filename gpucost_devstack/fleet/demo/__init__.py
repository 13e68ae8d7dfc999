"""The demo's fleet: three clusters with the workloads, mistakes and prices of a real company, at any scale.

The fleet is a function of calendar time in UTC. So an hour has the same nodes, pods and samples in whatever range it is
generated. Every random choice is a hash of names and absolute times.

- `production`, `research`, `batch`: the three clusters
- `workloads`: services, notebooks and queues of jobs, as pods; `pools`: their nodes; `clock`: time and random choices
- `settings`: the demo's settings document; `spot_prices`: simulated spot prices
"""

from gpucost_devstack.fleet.demo.fleet import CLUSTERS, scenarios
from gpucost_devstack.fleet.demo.settings import settings_document
from gpucost_devstack.fleet.demo.spot_prices import PRICE_NOTE, SpotPrice, spot_prices

__all__ = ["CLUSTERS", "PRICE_NOTE", "SpotPrice", "scenarios", "settings_document", "spot_prices"]
