"""Kubernetes-shaped objects: raw documents kept byte for byte, and typed views of the fields that are read."""
