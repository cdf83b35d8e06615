"""What reservations hold, and for which pods."""
