"""`gpucost kit`: everything that attribution needs inside an EKS cluster, written for a settings document.

`parameters` reads what the settings do not say, `series` says which series are kept, `values` puts both together,
`rendering` writes the files of `cluster/`.
"""
