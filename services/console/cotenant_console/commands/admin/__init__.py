"""`cotenant admin`: operations that need an administrator."""
