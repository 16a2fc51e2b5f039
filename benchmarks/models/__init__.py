"""The table of models: `sample` beside NUTS, on hierarchies, shrinkage, many parameters, everyday and classical models."""
