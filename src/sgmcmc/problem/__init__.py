"""What is sampled, in which variables, with which steps."""
