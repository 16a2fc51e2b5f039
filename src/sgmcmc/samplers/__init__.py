"""The named samplers, how they are composed, and `sample`."""
