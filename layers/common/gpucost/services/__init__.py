"""One file per function's job: asks ports, calls the domain, tells ports."""
