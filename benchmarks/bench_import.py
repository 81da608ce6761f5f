"""Time `import burstmamba` and `burstmamba --help` in fresh processes: `python benchmarks/bench_import.py`."""

from __future__ import annotations

import argparse
import subprocess
import sys

import torch
from measuring import clock, summary, write_results

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import torch": ["-c", "import torch"],
    "import burstmamba": ["-c", "import burstmamba"],
    "burstmamba --help": ["-m", "burstmamba", "--help"],
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    rows = []
    for name, arguments in COMMANDS.items():

        def run(arguments: list[str] = arguments) -> None:
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

        run()
        rows.append({"what": name} | summary([clock(run) for _ in range(15)]))
        print("{what:20} {median_ms:8.0f} ms   ({q1_ms:.0f} to {q3_ms:.0f})".format(**rows[-1]), flush=True)
    print(f"written to {write_results('import', torch.device('cpu'), rows)}")


if __name__ == "__main__":
    main()
