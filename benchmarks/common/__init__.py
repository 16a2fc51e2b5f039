"""What the benchmarks share: the job they do, processes of their own, and tables."""
