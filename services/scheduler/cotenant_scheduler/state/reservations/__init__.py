"""What reservations hold, and whom they are for."""
