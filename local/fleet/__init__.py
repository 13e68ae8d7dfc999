"""A simulated EKS GPU cluster: what its exporters would expose, and the truth, each from the scenario alone."""
