"""Who asks, and whether they may: users, request attributes, RBAC."""
