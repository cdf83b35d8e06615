"""Reservations: rules by which they are matched, used, and ended."""
