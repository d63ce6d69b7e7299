"""What decides over time: streams with a total, and routers that learn while serving."""
