"""How long a step would take without some of the syncs.

``build`` turns a trace into a ``model``, ``replay`` runs it with blocking calls left out, ``predictor`` asks for the
groups of sites and says how far the answer can be trusted.
"""
