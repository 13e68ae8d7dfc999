"""The `gpucost` command."""
