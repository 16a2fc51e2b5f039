"""After the fit: predictions, checks, leave-one-out, files. `Result` has the short names."""
