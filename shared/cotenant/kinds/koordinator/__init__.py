"""The kinds of Koordinator's API groups."""
