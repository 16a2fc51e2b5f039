"""Driving: the compiled loop, devices, processes, and the `Sampler` that a user holds."""
