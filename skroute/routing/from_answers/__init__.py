"""Routers that decide from the answers that they have paid for so far."""
