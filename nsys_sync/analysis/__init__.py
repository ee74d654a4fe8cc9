"""Room 3: tables become findings. ``run.analyze`` is the whole of it, top to bottom."""
