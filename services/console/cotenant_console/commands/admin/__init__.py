"""`cotenant admin`: what services leave to a person."""
