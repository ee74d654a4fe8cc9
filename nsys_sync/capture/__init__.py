"""Room 1: the user's program becomes a report file, and the report file an .sqlite that can be read."""
