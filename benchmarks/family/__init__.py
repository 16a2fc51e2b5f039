"""The samplers of the family side by side on four targets: what an effective draw costs where all are as right."""
