# Variables for the commands of the pages under docs: `. ./env.sh`.
export CLUSTER_NAME="{{ cluster.name }}"
{% if workspace %}
export AWS_PARTITION="{{ cluster.partition }}"
export AWS_ACCOUNT_ID="{{ cluster.account }}"
export AWS_REGION="{{ cluster.region }}"
export AMP_WORKSPACE_ID="{{ workspace.id }}"
export AMP_WORKSPACE_ARN="{{ workspace.arn }}"
{% endif %}
{% if not target %}
export KARPENTER_CHART="{{ versions.charts.karpenter.chart }}"
export KARPENTER_VERSION="{{ versions.charts.karpenter.version }}"
export GPU_OPERATOR_VERSION="{{ versions.charts.gpu_operator.version }}"
export KEDA_VERSION="{{ versions.charts.keda.version }}"
export CLUSTER_AUTOSCALER_VERSION="{{ versions.charts.cluster_autoscaler.version }}"
{% endif %}
export KUBE_STATE_METRICS_VERSION="{{ versions.charts.kube_state_metrics.version }}"
export DCGM_EXPORTER_VERSION="{{ versions.charts.dcgm_exporter.version }}"
{% if target == "kube-prometheus-stack" %}
export KUBE_PROMETHEUS_STACK_VERSION="{{ versions.charts.kube_prometheus_stack.version }}"
{% endif %}
