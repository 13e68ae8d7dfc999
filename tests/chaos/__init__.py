"""The pipeline under faults: killed at every outside call, and through a table of what AWS and Prometheus do."""
