"""Protection of latency-sensitive pods on mainline kernels: spread threads, long slices, the real-time class."""
