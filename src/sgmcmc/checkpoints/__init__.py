"""Runs on disk: files that survive, what makes a run the same run, and reading it at any time."""
