"""The whole system on one machine: AWS stand-ins, simulated clusters and what is true of them."""
