"""rbac.authorization.k8s.io/v1: who may do what."""
