"""GPU cost attribution for Amazon EKS: who holds GPUs, who uses them, what they cost, what is wasted."""

import gc

# A start creates some 100,000 objects that live as long as the process, and many more that do not. By default, the
# garbage collector scans new objects after every 2,000.
gc.set_threshold(200_000)
