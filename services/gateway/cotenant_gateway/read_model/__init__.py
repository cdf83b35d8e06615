"""The fold of the log into API objects: pure, and what every read is answered from."""
