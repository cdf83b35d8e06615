"""Admission, object writes and the Kubernetes-shaped HTTP API over the log."""
