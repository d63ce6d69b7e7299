"""What routers have: members, the log, estimates, the policy and what is common to their calls."""
