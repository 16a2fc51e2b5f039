"""Data as columns, in memory or elsewhere, and minibatches of them in O(n)."""
