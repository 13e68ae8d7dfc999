"""`gpucost rules`: recording and alerting rules for Prometheus and AMP, generated from the settings.

- `promql`: pieces of expressions
- `shares`: what a requested unit is of a physical GPU, as far as a static rule can tell
- `owners`: who answers for a namespace or a pod
- `devices`: how busy devices are, and who holds them
- `recording`, `alerting`: the rules; `documents`: the forms in which they are loaded
"""
