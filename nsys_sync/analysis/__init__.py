"""Room 3: tables become findings. ``run`` is the whole of it, top to bottom."""
