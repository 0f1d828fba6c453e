#!/usr/bin/env python3
"""Latencies of 8 bytes by perftest in a guest, compared with the library's in the same boot.

  guests.py perftest.py [--iterations N]
  guests.py --spin perftest.py --ours PROGRAM [--rounds N] [--most R]

PROGRAM is the compiled latency.c. stage.py --compare does all of the second form.

Prints one line of JSON: median, least and largest microseconds of a write, a read and an atomic
between two processes of the guest over rxe0. A write's latency is half of a round trip, as perftest
counts it.

With --ours, the two alternate. The line has the best of all rounds and the library's latency
relative to perftest's: a notified put to a write, a put with its flush to two (a write, and the
flush's reply), a get with its flush to a read, a fetch_and_op and a lock to an atomic. Exits with 1
if a call that is one operation in both (notified put, get, fetch_and_op) exceeds --most.
"""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time

PROGRAMS = {"write": ["ib_write_lat"], "read": ["ib_read_lat"],
            "atomic": ["ib_atomic_lat", "-A", "FETCH_AND_ADD"]}


def gid_index():
    """The index of the port's IPv4 address of RoCE v2; the others are link-local."""
    said = subprocess.run(["ibv_devinfo", "-v", "-d", "rxe0"], capture_output=True,
                          text=True).stdout
    found = re.search(r"GID\[\s*(\d+)\]:\s*::ffff:", said)
    return found[1] if found else "1"


def measure(program, iterations, index, port):
    line = [*program, "-d", "rxe0", "-x", index, "-F", "-n", str(iterations), "-p", str(port)]
    line += [] if program[0] == "ib_atomic_lat" else ["-s", "8"]
    server = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        # The server refuses connections until it has found its device.
        for _ in range(50):
            client = subprocess.run([*line, "fabric0"], capture_output=True, text=True, timeout=100)
            rows = re.findall(r"^\s*8\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", client.stdout,
                              re.M)
            if rows:
                least, largest, typical = map(float, rows[0][1:4])
                return {"typical_us": typical, "min_us": least, "max_us": largest,
                        "iterations": int(rows[0][0])}
            time.sleep(0.2)
        raise SystemExit(f"{program[0]} reported no latency: "
                         f"{client.stdout[-500:]}{client.stderr[-500:]}")
    finally:
        server.terminate()
        server.wait()


def compare(options, index):
    """The library's latencies and perftest's, alternating."""
    theirs, ours = [], []
    env = {**os.environ, "MPIX_RMA_TRANSPORT": "verbs", "UCX_TLS": "tcp,self,sm",
           "UCX_NET_DEVICES": "eth1",
           "HWLOC_COMPONENTS": "synthetic,stop", "HWLOC_SYNTHETIC": f"pu:{os.cpu_count()}"}
    for turn in range(options.rounds):
        numbers = enumerate(PROGRAMS.items(), 18600 + 10 * turn)
        theirs.append({name: measure(program, options.iterations, index, number)["typical_us"]
                       for number, (name, program) in numbers})
        said = subprocess.run([*shlex.split(options.mpiexec), "-n", "2", options.ours], env=env,
                              capture_output=True, text=True, timeout=200)
        if said.returncode:
            raise SystemExit(f"{options.ours} failed: {said.stdout}{said.stderr}")
        ours.append(json.loads(said.stdout))
    best = lambda seen, name: min(one[name] for one in seen)
    write, read, atomic = (best(theirs, name) for name in ("write", "read", "atomic"))
    ratios = {"notified_put": best(ours, "notified_put") / write,
              "put": best(ours, "put") / (write + read), "get": best(ours, "get") / read,
              "lock": best(ours, "lock") / atomic,
              "fetch_and_op": best(ours, "fetch_and_op") / atomic}
    print(json.dumps({"perftest_us": {"write": write, "read": read, "atomic": atomic},
                      "ours_us": {name: best(ours, name) for name in ours[0]},
                      "ratios": {name: round(ratio, 2) for name, ratio in ratios.items()},
                      "rounds": options.rounds}))
    slow = [name for name in ("notified_put", "get", "fetch_and_op") if options.most
            and ratios[name] > options.most]
    if slow:
        print(f"more than {options.most} times perftest's: {', '.join(slow)}")
    return 1 if slow else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--ours", metavar="PROGRAM")
    parser.add_argument("--mpiexec", default="mpiexec.mpich", help="command, with options")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, help="largest permitted ratio to perftest")
    options = parser.parse_args()
    index = gid_index()
    if options.ours:
        return compare(options, index)
    results = {name: measure(program, options.iterations, index, 18500 + number)
               for number, (name, program) in enumerate(PROGRAMS.items())}
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
