"""Builds Grafana dashboards with Grafana's SDK: `python -m authoring.grafana [--check]` writes `dashboards/`.

- `building`: data sources, variables and panels that the dashboards share
- `live`: panels that the dashboards on recorded rules share
- `fleet`, `business_unit`, `node_pool`, `pipeline`, `ledger`: one dashboard each
"""
