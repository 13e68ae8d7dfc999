"""One way to log and to count: structured logs with a correlation id, and CloudWatch metrics in the log (EMF)."""

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import Metrics

NAMESPACE = "GpuCost"

logger = Logger()
metrics = Metrics(namespace=NAMESPACE)
