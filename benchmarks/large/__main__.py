"""Data larger than memory: a folder of rows sampled from disk, beside the same model in memory. 10 GB unless told otherwise.

Makes the folder first (synthetic logistic regression, converted and shuffled in blocks), with twice its size of disk; where there
is less, the largest that fits. Tables go to benchmarks/build/large.md and large.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.common.problem import BUILD, ITERATIONS
from benchmarks.large.comparison import measure, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, help="where to make the folder of rows, or find it (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="do not remove the folder of rows that was made")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    chosen = parser.parse_args()
    folder = chosen.folder or Path(tempfile.gettempdir()) / "sgmcmc-bench-large"
    result = measure(chosen.gigabytes, folder, chosen.rounds, chosen.iterations, chosen.keep, whole=True)
    BUILD.mkdir(exist_ok=True)
    (BUILD / "large.md").write_text(report(result) + "\n")
    (BUILD / "large.json").write_text(json.dumps(result, indent=1) + "\n")
    print(report(result))


if __name__ == "__main__":
    main()
