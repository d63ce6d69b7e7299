"""Decisions over time: streams with a total, and routers that learn from requests."""
