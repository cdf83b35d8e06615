"""What pods ask: their documents as shapes, and what they want of each other."""
