"""What a chain does with a gradient and some noise: one file for each family of updates."""
