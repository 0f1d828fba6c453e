#!/usr/bin/env python3
"""Runs a command in a small cluster of network namespaces on this machine.

  nodes.py [--nodes N] [--check] COMMAND [ARGUMENT ...]

Each node is a network namespace with its own host name, process and IPC namespaces, and address. A
bridge joins the nodes, so they communicate only over TCP. COMMAND runs on the first node, with the
node names in MPIX_NODES (a,b,...). Launchers use `node-shell` to reach the others. --check only
reports whether this machine permits namespaces. All is removed at the end.
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def ip(*words, check=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.returncode == 0


class Nodes:
    """Network namespaces, joined by a bridge in another one."""

    def __init__(self, count):
        self.prefix = f"mx{os.getpid() % 100000}"
        self.hub = f"{self.prefix}h"
        self.names = [f"{self.prefix}n{index}" for index in range(count)]
        self.made = []
        # Used by `ip netns exec`, so that each node resolves the others' names.
        self.tables = []

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        hosts = "127.0.0.1 localhost\n"
        hosts += "".join(f"10.213.7.{index + 1} {name}\n" for index, name in enumerate(self.names))
        self.add(self.hub)
        ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.hub, "link", "set", "bridge", "up")
        for index, name in enumerate(self.names):
            self.add(name)
            folder = f"/etc/netns/{name}"
            os.makedirs(folder)
            self.tables.append(folder)
            with open(f"{folder}/hosts", "w") as table:
                table.write(hosts)
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{index}",
               "netns", self.hub)
            ip("-n", self.hub, "link", "set", f"port{index}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.213.7.{index + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def add(self, name):
        ip("netns", "add", name)
        self.made.append(name)

    def __exit__(self, *_):
        for name in reversed(self.made):
            ip("netns", "del", name, check=False)
        for folder in self.tables:
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, command, env=None):
        shell = os.path.join(HERE, "node-shell")
        env = dict(os.environ if env is None else env, MPIX_NODES=",".join(self.names),
                   MPIX_NODE_SHELL=shell)
        inside = ["unshare", "--uts", "--ipc", "--pid", "--mount", "--fork", "--kill-child",
                  "--mount-proc", "/bin/sh", "-c",
                  f'hostname {self.names[0]}; exec "$@"', "sh"]
        child = subprocess.Popen(["ip", "netns", "exec", self.names[0], *inside, *command], env=env)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: child.terminate())
        return child.wait()


def allowed():
    """The reason why this machine does not permit namespaces, or None."""
    for tool in ("ip", "unshare"):
        if shutil.which(tool) is None:
            return f"there is no `{tool}`"
    try:
        with Nodes(1) as nodes:
            if nodes.run(["true"]) != 0:
                return "unshare is refused"
    except (RuntimeError, OSError) as error:
        return str(error)
    return None


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.check:
        reason = allowed()
        print(f"no namespaces: {reason}" if reason else "namespaces are allowed")
        return 1 if reason else 0
    with Nodes(options.nodes) as nodes:
        return nodes.run(options.command)


if __name__ == "__main__":
    sys.exit(main())
