"""Findings to what people read: terminal, page, tables, trace viewers."""
