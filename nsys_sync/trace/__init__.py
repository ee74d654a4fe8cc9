"""Room 2: a file becomes tables. The only place that knows SQL, schema versions and payload formats.

``open_trace(path)`` gives a ``Trace`` (see ``reader``); its columns are described in ``tables``.
"""
