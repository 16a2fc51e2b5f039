"""The article's experiments (its sections 2 and 6), run again: `python -m reproduction` in the project's folder.

`settings` is the one table of numbers; each experiment is a module that measures (in parts that survive an interruption),
draws its figures and judges the article's claims; `report` turns what they found into Markdown.
"""
