"""Simulated EKS GPU clusters: what their exporters would expose, and the truth, each from the scenario alone.

- `scenario`, `builders`, `hardware`, `scraping`: what a cluster is, and how it is scraped
- `scenarios`: clusters as they are found, by room; `mixes` puts them together by chance, the same for the same seed
- `kube_state_metrics`, `dcgm_exporter`, `neuron_monitor`, `openmetrics`: what Prometheus would have scraped
- `instants`, `sight`, `truth`: what is true, and how far off an observer may be who sees scrapes only

Nothing here imports `gpucost`: two mistakes that agree would prove nothing.
"""
