"""Kubernetes-shaped objects: raw documents kept byte for byte, and typed views of what is read."""
