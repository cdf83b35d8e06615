"""Disks: weights, rates and latencies by class and by pod."""
