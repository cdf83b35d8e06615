"""Migration jobs: what they are, which pass, in which order."""
