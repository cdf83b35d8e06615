"""What to move, and which moves may run now."""
