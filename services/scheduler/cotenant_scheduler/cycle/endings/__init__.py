"""What follows for placed and held-back pods when something about them changed."""
