"""Decisions over time: streams with a budget, and routers that learn from requests."""
