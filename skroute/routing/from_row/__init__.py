"""Routers that decide from the row alone, before any model is called."""
