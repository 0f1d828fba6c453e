#!/usr/bin/env python3
"""Latencies of 8 bytes, and rates, by perftest in a guest, compared with the library's in the same
boot.

  guests.py perftest.py [--iterations N]
  guests.py --spin perftest.py --ours PROGRAM --bare PROGRAM [--rounds N]

The programs are the compiled latency.c and bare.c. stage.py --compare does all of the second form.

Prints one line of JSON: median, least and largest microseconds of a write, a read and an atomic
between two processes of the guest over rxe0. A write's latency is half of a round trip, as perftest
counts it.

With --ours, the three alternate. The line has the medians of all rounds and the library's latency
relative to perftest's: a notified put to a write, a put with its flush to two (a write, and the
flush's reply), a get with its flush to a read, a fetch_and_op and a lock to an atomic. "to_bare" is
its latency relative to that of the same requests, posted by bare.c. The rates (8 bytes, and 1 MiB)
are relative to ib_write_bw's with the same depth of the send queue; more is better. The last line
says which ratios are behind GOALS. Exits with an error if a program fails, never for timing.
"""
import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import time

PROGRAMS = {"write": ["ib_write_lat"], "read": ["ib_read_lat"],
            "atomic": ["ib_atomic_lat", "-A", "FETCH_AND_ADD"]}
# Latencies at most, and rates at least, as ratios to perftest's. Emulation makes the library's
# instructions as dear as the kernel's, which a real device does not execute.
GOALS = {"notified_put": 1.5, "put": 1.5, "get": 1.5, "lock": 1.5, "fetch_and_op": 1.5,
         "rate": 0.9, "bandwidth": 0.95}
# Depth of the library's send queues.
DEPTH = 256
RATES = {"rate": ["-s", "8", "-n", "3000", "-t", str(DEPTH)],
         "bandwidth": ["-s", str(1 << 20), "-n", "60", "-t", str(DEPTH)]}


def gid_index():
    """The index of the port's IPv4 address of RoCE v2; the others are link-local."""
    said = subprocess.run(["ibv_devinfo", "-v", "-d", "rxe0"], capture_output=True,
                          text=True).stdout
    found = re.search(r"GID\[\s*(\d+)\]:\s*::ffff:", said)
    return found[1] if found else "1"


def latency(program, iterations, index, port):
    """Microseconds, by one of PROGRAMS."""
    line = [*program, "-n", str(iterations), *([] if "atomic" in program[0] else ["-s", "8"])]
    row = measure(line, index, port)
    return {"typical_us": row[4], "min_us": row[2], "max_us": row[3], "iterations": int(row[1])}


def rates(index, port):
    """Messages per microsecond, and MiB per second, by ib_write_bw."""
    short, long = (measure(["ib_write_bw", *RATES[name]], index, port + number)
                   for number, name in enumerate(("rate", "bandwidth")))
    return {"rate": short[4], "bandwidth": long[3]}


def measure(line, index, port):
    """The first row of numbers that a program of perftest prints."""
    line = [*line, "-d", "rxe0", "-x", index, "-F", "-p", str(port)]
    server = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        # The server refuses connections until it has found its device.
        for _ in range(50):
            client = subprocess.run([*line, "fabric0"], capture_output=True, text=True, timeout=100)
            row = re.search(r"^\s*\d+\s+\d+(\s+[\d.]+){3,}\s*$", client.stdout, re.M)
            if row:
                return [float(number) for number in row[0].split()]
            time.sleep(0.2)
        raise SystemExit(f"{line[0]} reported no numbers: "
                         f"{client.stdout[-500:]}{client.stderr[-500:]}")
    finally:
        server.terminate()
        server.wait()


def said(words, env):
    """What a program has printed as JSON."""
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=200)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def compare(options, index):
    """The library's latencies and perftest's, alternating."""
    theirs, ours, bare = [], [], []
    env = {**os.environ, "MPIX_RMA_TRANSPORT": "verbs", "UCX_TLS": "tcp,self,sm",
           "UCX_NET_DEVICES": "eth1",
           "HWLOC_COMPONENTS": "synthetic,stop", "HWLOC_SYNTHETIC": f"pu:{os.cpu_count()}"}
    for turn in range(options.rounds):
        numbers = enumerate(PROGRAMS.items(), 18600 + 10 * turn)
        theirs.append({name: latency(program, options.iterations, index, number)["typical_us"]
                       for number, (name, program) in numbers})
        theirs[-1].update(rates(index, 18605 + 10 * turn))
        ours.append(said([*shlex.split(options.mpiexec), "-n", "2", options.ours], env))
        bare.append(said([options.bare], env))
    typical = lambda seen, name: statistics.median(one[name] for one in seen)
    write, read, atomic = (typical(theirs, name) for name in ("write", "read", "atomic"))
    ratios = {"notified_put": typical(ours, "notified_put") / write,
              "put": typical(ours, "put") / (write + read), "get": typical(ours, "get") / read,
              "lock": typical(ours, "lock") / atomic,
              "fetch_and_op": typical(ours, "fetch_and_op") / atomic}
    ratios.update({name: typical(ours, name) / typical(theirs, name) for name in RATES})
    print(json.dumps({"perftest": {name: typical(theirs, name) for name in theirs[0]},
                      "ours": {name: typical(ours, name) for name in ours[0]},
                      "bare": {name: typical(bare, name) for name in bare[0]},
                      "ratios": {name: round(ratio, 2) for name, ratio in ratios.items()},
                      "to_bare": {name: round(typical(ours, name) / typical(bare, name), 2)
                                for name in ("put", "get", "lock")},
                      "rounds": options.rounds}))
    behind = [f"{name} {ratios[name]:.2f} ({goal})" for name, goal in GOALS.items()
              if (ratios[name] < goal if name in RATES else ratios[name] > goal)]
    print(f"behind their goals: {', '.join(behind) or 'none'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--ours", metavar="PROGRAM")
    parser.add_argument("--bare", metavar="PROGRAM")
    parser.add_argument("--mpiexec", default="mpiexec.mpich", help="command, with options")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    index = gid_index()
    if options.ours:
        compare(options, index)
        return 0
    results = {name: latency(program, options.iterations, index, 18500 + number)
               for number, (name, program) in enumerate(PROGRAMS.items())}
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
