"""How a gradient comes from a minibatch: one file for each estimator."""
