"""Pods are placed on nodes, in batches over arrays."""

import os

# Nothing here multiplies matrices, but numpy starts a thread for that on every core, which spins while it waits for work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
