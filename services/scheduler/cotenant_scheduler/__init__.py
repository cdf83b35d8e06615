"""Pods are placed on nodes, in batches over arrays."""

import os

# The scheduler multiplies no matrices, but numpy's BLAS starts a thread per core, which spins while idle.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
