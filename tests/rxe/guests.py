#!/usr/bin/env python3
"""Runs a command in guests with soft-RoCE: small virtual machines that see this machine's root
read-only, under an overlay in memory.

  guests.py [-n GUESTS] [--first] [--seconds S] [--loss SHARE] [--seed N] [--out DIR]
            COMMAND [ARGUMENT ...]

COMMAND runs in every guest, or with --first in the first one, in the current folder. It may use
MPIX_GUEST (0, 1, ...), MPIX_GUESTS (their number) and `tests/rxe/rsh guestI COMMAND`. Its files in
/run/out appear in DIR/<guest> at once. Names guestI are addresses of eth1, fabricI those of the
devices rxe0 (eth0). The exit status is that of the first guest that failed, 124 after the time
limit, 125 if a guest did not boot.

Faults can be injected from inside a guest or from outside: see tests/rxe/fault. Needs prepare.py.
Emulates, unless KVM can boot such a guest (MPIX_GUEST_ACCEL=tcg or kvm overrides).
"""
import argparse
import ctypes
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import prepare
import switch

HERE = os.path.dirname(os.path.abspath(__file__))
TIME_LIMIT, NEVER_UP = 124, 125
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KERNEL_LINE = ("console=ttyS0 quiet loglevel=5 panic=-1 mitigations=off nokaslr apparmor=0 audit=0"
               " random.trust_cpu=on nowatchdog rcupdate.rcu_cpu_stall_suppress=1")
# Under emulation, reading any other clock leaves the emulated code. This one is as stable as that
# of the machine outside.
ACCELERATORS = {"tcg": (["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max"],
                        "tsc=reliable clocksource=tsc"),
                "kvm": (["-accel", "kvm", "-cpu", "host"], "")}


def qemu(cache, accel, cpus, memory, line):
    words, clock = ACCELERATORS[accel]
    return ["qemu-system-x86_64", "-M", "q35,hpet=off", *words, "-smp", str(cpus),
            "-m", str(memory), "-nodefaults", "-display", "none",
            "-no-reboot", "-kernel", f"{cache}/vmlinux", "-initrd", f"{cache}/initrd.img",
            "-append", f"{KERNEL_LINE} {clock} {line}",
            "-object", "rng-random,id=random,filename=/dev/urandom",
            "-device", "virtio-rng-pci,rng=random"]


def ticks_per_millisecond(cache):
    """Rate of the processor's time stamp counter. An emulated guest on a busy machine would measure
    it wrongly, by up to ten times; its clock and all its time limits would run fast."""
    ticks = ctypes.CDLL(f"{cache}/patience.so").processor_ticks
    ticks.restype = ctypes.c_ulonglong

    def both():
        """Nanoseconds and ticks at one moment: the closest pair of several readings."""
        looks = []
        for _ in range(5):
            before, count, after = time.monotonic_ns(), ticks(), time.monotonic_ns()
            looks.append((after - before, (before + after) / 2, count))
        return min(looks)[1:]

    begin, first = both()
    time.sleep(0.1)
    end, last = both()
    return round((last - first) * 1e6 / (end - begin))


def accelerator(cache):
    """KVM if it boots a guest, which is tried once per boot of this machine: some have the device
    but cannot."""
    if os.environ.get("MPIX_GUEST_ACCEL"):
        return os.environ["MPIX_GUEST_ACCEL"]
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    key = open("/proc/sys/kernel/random/boot_id").read().strip()
    known = f"{cache}/accelerator"
    try:
        boot, found = open(known).read().split()
        if boot == key:
            return found
    except (OSError, ValueError):
        pass
    found = "tcg"
    try:
        tried = subprocess.run(qemu(cache, "kvm", 1, 512, "probe") + ["-serial", "stdio"],
                               stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        found = "kvm" if b"guest: probed" in tried.stdout else "tcg"
    except subprocess.TimeoutExpired:
        pass
    with open(known, "w") as out:
        out.write(f"{key} {found}\n")
    return found


class Guest:
    """One virtual machine, and its folder outside."""

    def __init__(self, index, options, sockets):
        self.index, self.folder = index, f"{options.out}/{index}"
        self.has_job = not (options.first and index)
        self.killed = False
        self.shown = 0
        self.rest = ""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        shutil.copy(f"{HERE}/guest-start", f"{self.folder}/start")
        names = {"MPIX_GUEST": index, "MPIX_GUESTS": options.guests,
                 "MPIX_GUEST_FOLDER": os.getcwd(), "MPIX_GUEST_RSH": f"{HERE}/rsh",
                 "MPIX_GUEST_PRELOAD": f"{options.cache}/patience.so" if options.patience else ""}
        self.write("setup", "".join(f"export {name}={shlex.quote(str(value))}\n"
                                    for name, value in names.items()))
        if self.has_job:
            self.write("job", shlex.join(options.command) + "\n")
        clock = f" tsc_early_khz={options.ticks}" if options.accel == "tcg" else ""
        line = qemu(options.cache, options.accel, options.cpus, options.memory,
                    f"guest={index}{clock}") + ["-serial", f"file:{self.folder}/console"]
        for name, path, more in (("root", "/", ",readonly=on,multidevs=remap"),
                                 ("out", self.folder, "")):
            line += ["-fsdev", f"local,id={name},path={path},security_model=none{more}",
                     "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]
        for network in (switch.FABRIC, switch.REST):
            end = f"{sockets}/{network}.{index}"
            ends = (f"local.type=unix,local.path={end}.guest,"
                    f"remote.type=unix,remote.path={end}.switch")
            address = switch.hardware_address(network, index)
            line += ["-netdev", f"dgram,id=net{network},{ends}", "-device",
                     f"virtio-net-pci,netdev=net{network},mac={address},host_mtu=4200,romfile="]
        self.monitor = f"{sockets}/{index}.monitor"
        line += ["-chardev", f"socket,id=monitor,path={self.monitor},server=on,wait=off",
                 "-mon", "chardev=monitor,mode=readline"]
        with open(f"{self.folder}/qemu", "w") as log:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True)

    def write(self, name, text):
        with open(f"{self.folder}/{name}.new", "w") as out:
            out.write(text)
        os.rename(f"{self.folder}/{name}.new", f"{self.folder}/{name}")

    def read(self, name):
        try:
            return open(f"{self.folder}/{name}", errors="replace").read()
        except OSError:
            return None

    def plug(self, way):
        """Plugs in (`on`) or unplugs (`off`) the cable of the fabric's card."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(10)
            monitor.connect(self.monitor)
            for line in (None, f"set_link net{switch.FABRIC} {way}\n"):
                monitor.sendall((line or "").encode())
                said = b""
                while not said.rstrip().endswith(b"(qemu)"):
                    more = monitor.recv(4096)
                    if not more:
                        raise OSError("the monitor has hung up")
                    said += more

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def show(self, prefix, to_the_end=False):
        """Prints the job's new output, in whole lines."""
        try:
            with open(f"{self.folder}/log", "rb") as log:
                log.seek(self.shown)
                new = log.read()
        except OSError:
            return
        self.shown += len(new)
        *lines, self.rest = (self.rest + new.decode(errors="replace")).split("\n")
        if to_the_end and self.rest:
            lines, self.rest = [*lines, self.rest], ""
        for line in lines:
            print(prefix + line, flush=True)


class Guests:
    """All guests of a run, their networks, and fault requests."""

    def __init__(self, options):
        self.options = options
        # A short path: those of sockets are limited to 107 characters.
        self.sockets = tempfile.mkdtemp(prefix="mpix-rxe-")
        self.all, self.status = [], {}
        try:
            self.switch = switch.Switch(self.sockets, options.guests, options.loss, options.seed)
            self.switch.start()
            for index in range(options.guests):
                self.all.append(Guest(index, options, self.sockets))
        except BaseException:
            self.close()
            raise

    def close(self):
        # Not interruptible: a guest that is left runs on.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        for guest in self.all:
            guest.kill()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def until(self, done, seconds):
        """Waits until `done`; returns False at the time limit. Shows output and answers fault
        requests meanwhile."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
            for guest in self.all:
                guest.show(self.prefix(guest))
                self.answer(guest)
        return True

    def prefix(self, guest):
        return f"[{guest.index}] " if self.options.guests > 1 and not self.options.first else ""

    def run(self):
        begin = time.monotonic()
        came = lambda guest: guest.read("up") is not None
        self.until(lambda: all(came(guest) or guest.process.poll() is not None
                               for guest in self.all), self.options.boot_seconds)
        absent = [guest for guest in self.all if not came(guest)
                  or guest.process.poll() is not None]
        if absent:
            for guest in absent:
                print(f"guest {guest.index} did not boot in {time.monotonic() - begin:.0f} s:")
                print("".join((guest.read(name) or "")[-2000:] for name in ("console", "qemu")),
                      flush=True)
            return NEVER_UP
        self.hurry()
        print(f"{self.options.guests} booted in {time.monotonic() - begin:.1f} s "
              f"({self.options.accel}, {self.options.cpus} CPU each)", flush=True)
        for guest in self.all:
            guest.write("go", "")
        in_time = self.until(lambda: all(self.ended(guest) for guest in self.all if guest.has_job),
                             self.options.seconds)
        for guest in self.all:
            guest.show(self.prefix(guest), to_the_end=True)
        if self.options.loss or self.switch.lost:
            print(f"fabric: {self.switch.carried} frames carried, {self.switch.lost} lost",
                  flush=True)
        if not in_time:
            print(f"still running after {self.options.seconds:.0f} s", flush=True)
            return TIME_LIMIT
        return next((status for _, status in sorted(self.status.items()) if status), 0)

    def hurry(self):
        """Prioritizes threads that carry frames over those that emulate processors. Programs in
        guests poll, so emulation never sleeps; on a busy machine a frame would wait for a time
        slice at each of three hops."""
        try:
            for thread in [self.switch.native_id] + [guest.process.pid for guest in self.all]:
                os.setpriority(os.PRIO_PROCESS, thread, -10)
        except OSError:
            pass  # not root: only slower

    def ended(self, guest):
        """Whether a guest's job has ended; stores its exit status. A guest killed on purpose counts
        as 0."""
        if guest.index not in self.status:
            said = guest.read("status")
            if said is not None:
                self.status[guest.index] = int(said)
            elif guest.killed:
                self.status[guest.index] = 0
            elif guest.process.poll() is not None:
                print(f"guest {guest.index} ended "
                      f"unexpectedly:\n{(guest.read('console') or '')[-2000:]}", flush=True)
                self.status[guest.index] = 1
        return guest.index in self.status

    def answer(self, guest):
        """Handles request files ask.NAME in the guest's folder; the reply is a file answer.NAME."""
        for name in os.listdir(guest.folder):
            if name.startswith("ask.") and not name.endswith(".new"):
                words = (guest.read(name) or "").split()
                os.unlink(f"{guest.folder}/{name}")
                guest.write("answer." + name.removeprefix("ask."), self.fault(words) + "\n")

    def fault(self, words):
        """Executes one command of `tests/rxe/fault`; the reply begins with ok or wrong."""
        try:
            if words[0] in ("down", "up", "unplug", "plug", "kill"):
                guest = self.all[int(words[1].removeprefix("guest"))]
            later = None
            if words[0] == "down":
                self.switch.down.add(guest.index)
                later = lambda: self.switch.down.discard(guest.index)
            elif words[0] == "unplug":
                guest.plug("off")
                later = lambda: guest.plug("on")
            elif words[0] == "plug":
                guest.plug("on")
            elif words[0] == "up":
                self.switch.down.discard(guest.index)
            elif words[0] == "kill":
                guest.killed = True
                guest.kill()
            elif words[0] == "loss":
                self.switch.loss = float(words[1])
            elif words[0] == "frames":
                return f"ok {self.switch.carried} {self.switch.lost}"
            else:
                return f"wrong: unknown command {words[0]}"
            if later and len(words) > 2:
                threading.Timer(float(words[2]), later).start()
            return "ok"
        except (IndexError, ValueError, OSError) as error:
            return f"wrong: {' '.join(words)}: {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--guests", type=int, default=1)
    parser.add_argument("--first", action="store_true",
                        help="run the command in the first guest only")
    parser.add_argument("--seconds", type=float, default=300, help="time limit of the command")
    parser.add_argument("--boot-seconds", type=float, default=150, help="time limit of booting")
    parser.add_argument("--cpus", type=int,
                        help="per guest (default: 2 if this machine has as many, else 1)")
    parser.add_argument("--memory", type=int, default=1024, help="per guest, in MiB")
    parser.add_argument("--spin", dest="patience", action="store_false",
                        help="let programs poll without waiting (see patience.c)")
    parser.add_argument("--loss", type=float, default=0,
                        help="share of the fabric's frames to drop, such as 0.01")
    parser.add_argument("--seed", type=int, default=1, help="seed of the losses")
    parser.add_argument("--out", help="folder for results")
    parser.add_argument("--cache", default=prepare.FOLDER)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("no command")
    if not prepare.kernel_of(options.cache):
        parser.error("run prepare.py first")
    options.out = os.path.abspath(options.out or f"{options.cache}/out")
    # More virtual CPUs than real ones make guests wait for each other.
    options.cpus = options.cpus or (2 if options.guests == 1
                                    or len(os.sched_getaffinity(0)) >= 2 * options.guests else 1)
    options.accel = accelerator(options.cache)
    options.ticks = ticks_per_millisecond(options.cache)
    for number in SIGNALS:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    guests = Guests(options)
    try:
        return guests.run()
    finally:
        guests.close()


if __name__ == "__main__":
    sys.exit(main())
