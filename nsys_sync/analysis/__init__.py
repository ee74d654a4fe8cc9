"""Room 3: tables become findings. ``run`` is the whole of it, top to bottom.

Which calls waited, and for what (``calls``), where they stand in the program (``stacks``, ``sites``, ``source``), in
which ``steps``; what the GPU's idle time is due to (``idle``), what a step would take without them (``whatif``), what
kind of sync each one is (``catalogue``); then all of it as values (``assemble``), a ``Report`` (``findings``) and a
``Timeline``. ``watch`` makes a report of what a program's own process has seen instead of a trace.
"""
