"""GPU cost attribution for Amazon EKS: who holds GPUs, who uses them, what they cost, what is wasted."""
