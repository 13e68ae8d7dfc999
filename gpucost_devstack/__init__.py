"""The whole system on one machine: an embedded AWS, real engines, and simulated clusters with their true costs."""
