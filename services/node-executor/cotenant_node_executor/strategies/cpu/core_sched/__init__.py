"""Core scheduling: threads share a physical core only with threads of their own group."""
