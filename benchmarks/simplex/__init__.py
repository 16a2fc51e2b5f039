"""Probabilities near zero: SCIR beside SGRLD on a posterior that is known, and both beside variational Bayes on topics."""
