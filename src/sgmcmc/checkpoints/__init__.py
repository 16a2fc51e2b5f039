"""Runs on disk: what makes a run the same run, its folder, and files that survive whatever ends the process.

`folder` is what the loop uses: `RunFolder`, over `drawfiles` (draws, appended) and `durable` (everything else, replaced at once).
`reading` finds it all again, `packing` turns trees into arrays and back, `fingerprint` tells one run from another.
"""
