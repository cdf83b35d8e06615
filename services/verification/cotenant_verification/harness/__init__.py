"""The harness of a chaos run: every service, gateway and node in one world, and the actions that disturb them."""
