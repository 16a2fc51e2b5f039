"""The mathematics, pure: dynamics, gradient estimators, what one iteration is, and the laws that follow."""
