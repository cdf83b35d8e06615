"""Descheduling: decides which pods to move, and which moves may run now."""
