"""Helpers that no user imports."""
