"""The pipeline under faults: killed at every external call, and under a table of faults of AWS and Prometheus."""
