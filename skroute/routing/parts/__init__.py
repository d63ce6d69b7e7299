"""Parts of routers: members, the log, estimates, the policy, base classes."""
