"""Speed, memory and accuracy, measured here and now.

`bench` is `make bench`, whose sections are in `steps` (what a step costs), `fresh` (what a new process costs) and `large` (data
on disk). `large` is also `make bench-large`, and `auto` is `make bench-auto`. What they share is in `common`.
"""
