"""The fold of the log into API objects: pure, and the source of every read."""
