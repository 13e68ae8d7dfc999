"""Where figures come from: Prometheus, AWS prices, the AWS bill."""
