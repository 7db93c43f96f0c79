"""Searches as jobs: states, leases, and one child process a search."""
