"""The Kubernetes-shaped API, as far as more than one package needs it: kinds, objects, validation, edits of documents."""
