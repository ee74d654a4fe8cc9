"""What kind of sync a site is and what to write instead.

``judge`` asks the rules (``rules.toml``, its form in ``rules``) about the ``evidence`` of a site. What they ask for is
found by ``operations`` (which one waits), ``consumer`` (what becomes of the value) and ``surroundings`` (what is near),
all of them in the syntax tree of the source line (``syntax``). Nothing of the program is run or imported.
"""
