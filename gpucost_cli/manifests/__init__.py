"""`gpucost manifests render`: writes every file that attribution needs inside an EKS cluster.

- `parameters`: reads the facts that the settings document does not contain
- `targets`: lists the files that each way to connect an existing cluster needs
- `series`: decides which series collectors keep
- `values`: combines settings and parameters into the variables of the templates
- `rendering`: fills the templates of `cluster/` and writes the files
"""
