"""Simulated EKS GPU clusters: the series of their exporters, and the true costs, both computed from the scenario.

- `scenario`, `builders`, `hardware`, `scraping`: the description of a cluster, and how it is scraped
- `scenarios`: realistic clusters by topic; `mixes` generates more from random seeds
- `kube_state_metrics`, `dcgm_exporter`, `neuron_monitor`, `openmetrics`: the samples that Prometheus scrapes
- `instants`, `truth`, `bounds`: the true figures, and the error bounds of an observer who only sees scrapes

Nothing here imports `gpucost`: a mistake shared with the product would go unnoticed.
"""
