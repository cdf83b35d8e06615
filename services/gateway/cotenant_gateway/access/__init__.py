"""Users, request attributes, RBAC."""
