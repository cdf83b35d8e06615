"""Admission of nodes, and of documents derived from them."""
