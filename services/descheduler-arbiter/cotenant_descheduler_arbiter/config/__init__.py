"""The configuration document, checked once at the start: what it says, and the policy that follows from it."""
