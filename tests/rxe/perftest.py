#!/usr/bin/env python3
"""Latencies of 8 bytes by perftest in a guest, for comparison with ours in the same boot.

  guests.py perftest.py [--iterations N]      (perftest.py runs in the guest)

Prints one line of JSON: typical (median), least and largest microseconds of a write, a read and an atomic between two processes of
the guest over rxe0. A write's is half of a round trip, as perftest counts it.
"""
import argparse
import json
import re
import subprocess
import sys
import time

PROGRAMS = {"write": ["ib_write_lat"], "read": ["ib_read_lat"], "atomic": ["ib_atomic_lat", "-A", "FETCH_AND_ADD"]}


def gid_index():
    """The index of the port's IPv4 address of RoCE v2; the others are link-local."""
    said = subprocess.run(["ibv_devinfo", "-v", "-d", "rxe0"], capture_output=True, text=True).stdout
    found = re.search(r"GID\[\s*(\d+)\]:\s*::ffff:", said)
    return found[1] if found else "1"


def measure(program, iterations, index, port):
    line = [*program, "-d", "rxe0", "-x", index, "-F", "-n", str(iterations), "-p", str(port)]
    line += [] if program[0] == "ib_atomic_lat" else ["-s", "8"]
    server = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        # The server listens when it has found its device; until then it refuses.
        for _ in range(50):
            client = subprocess.run([*line, "fabric0"], capture_output=True, text=True, timeout=100)
            rows = re.findall(r"^\s*8\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", client.stdout, re.M)
            if rows:
                least, largest, typical = map(float, rows[0][1:4])
                return {"typical_us": typical, "min_us": least, "max_us": largest, "iterations": int(rows[0][0])}
            time.sleep(0.2)
        raise SystemExit(f"{program[0]} says nothing: {client.stdout[-500:]}{client.stderr[-500:]}")
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=1000)
    options = parser.parse_args()
    index = gid_index()
    results = {name: measure(program, options.iterations, index, 18500 + number) for number, (name, program) in enumerate(PROGRAMS.items())}
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
