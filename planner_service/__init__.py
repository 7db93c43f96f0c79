"""The planner service: HTTP interface, jobs, store and command line around the pure library `solver`."""
