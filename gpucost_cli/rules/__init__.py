"""`gpucost manifests rules`: generates recording and alerting rules for Prometheus and AMP from the settings.

- `promql`: parts of PromQL expressions
- `shares`: the physical GPUs that one unit of a resource stands for
- `owners`: the business unit of each namespace or pod
- `devices`: the utilization of devices, and the pods that hold them
- `recording`, `alerting`: the rules
- `documents`: the file formats for Prometheus, its operator and AMP
"""
