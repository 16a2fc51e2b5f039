"""`sample` on everyday models: against reference posteriors, or a refusal that names row or parameter."""
