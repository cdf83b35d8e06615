"""The Kubernetes-shaped API, shared by several packages: kinds, objects, validation, edits of documents."""
