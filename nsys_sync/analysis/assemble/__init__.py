"""From columns to values: what the analysis found becomes a ``Report``, and a ``Timeline`` for what draws one."""
