"""GPU cost attribution for Amazon EKS: who holds GPUs, who uses them, what they cost, what is wasted."""

import gc

# A start creates some 500,000 objects, of which 100,000 live as long as the process. By default, the garbage collector
# scans new objects after every 2,000.
gc.set_threshold(200_000)
