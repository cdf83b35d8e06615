"""One node: samples, processes in cgroups, and enforcement."""
