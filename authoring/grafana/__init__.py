"""Grafana dashboards as code, with Grafana's own SDK: `python -m authoring.grafana [--check]` writes `dashboards/`.

- `building`: data sources, variables and panels that the dashboards share
- `fleet`, `business_unit`, `node_pool`, `pipeline`, `ledger`: one dashboard each
- `asked`: which metrics dashboards and rules ask for, so that collectors keep them
"""
