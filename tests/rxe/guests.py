#!/usr/bin/env python3
"""Runs a command in guests with soft-RoCE: small virtual machines over this machine's root, which they see read-only under an overlay in memory.

  guests.py [-n GUESTS] [--first] [--seconds S] [--loss SHARE] [--seed N] [--out DIR] COMMAND [ARGUMENT ...]

COMMAND runs in each guest, or with --first in the first alone, in this folder, and may use MPIX_GUEST (0, 1, ...), MPIX_GUESTS (how many) and
`tests/rxe/rsh guestI COMMAND`. What it writes to /run/out is in DIR/<guest> outside, at once. Names guestI are addresses for everything (eth1),
fabricI those of the devices rxe0 (eth0). The exit status is that of the first guest that failed, 124 if the time was up, 125 if a guest never came up.

While it runs, anybody inside or outside may make faults: `tests/rxe/fault COMMAND` in a guest, see its beginning.
Needs prepare.py. Emulated, unless KVM can boot such a guest (MPIX_GUEST_ACCEL=tcg or kvm decides).
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
KERNEL_LINE = "console=ttyS0 quiet loglevel=5 panic=-1 mitigations=off nokaslr apparmor=0 audit=0 random.trust_cpu=on nowatchdog" \
              " rcupdate.rcu_cpu_stall_suppress=1"
# Under emulation a look at any other clock leaves the emulated code; its stability is that of the machine outside.
ACCELERATORS = {"tcg": (["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max"], "tsc=reliable clocksource=tsc"),
                "kvm": (["-accel", "kvm", "-cpu", "host"], "")}


def qemu(cache, accel, cpus, memory, line):
    words, clock = ACCELERATORS[accel]
    return ["qemu-system-x86_64", "-M", "q35,hpet=off", *words, "-smp", str(cpus), "-m", str(memory), "-nodefaults", "-display", "none",
            "-no-reboot", "-kernel", f"{cache}/vmlinux", "-initrd", f"{cache}/initrd.img", "-append", f"{KERNEL_LINE} {clock} {line}",
            "-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random"]


def ticks_per_millisecond(cache):
    """How fast the processor's counter runs. A guest that is emulated on a busy machine would find out wrongly, up to ten times, by comparing it with emulated
    clocks; its time, and with it all limits, would run faster than ours."""
    ticks = ctypes.CDLL(f"{cache}/patience.so").processor_ticks
    ticks.restype = ctypes.c_ulonglong

    def both():
        """Nanoseconds and ticks of one moment: of some looks at both clocks, the pair with the least between them."""
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
    """KVM, if it boots a guest: there are machines that have the device and cannot. Found out once for each boot of this machine."""
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
        tried = subprocess.run(qemu(cache, "kvm", 1, 512, "probe") + ["-serial", "stdio"], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
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
        names = {"MPIX_GUEST": index, "MPIX_GUESTS": options.guests, "MPIX_GUEST_FOLDER": os.getcwd(), "MPIX_GUEST_RSH": f"{HERE}/rsh",
                 "MPIX_GUEST_PRELOAD": f"{options.cache}/patience.so" if options.patience else ""}
        self.write("setup", "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in names.items()))
        if self.has_job:
            self.write("job", shlex.join(options.command) + "\n")
        clock = f" tsc_early_khz={options.ticks}" if options.accel == "tcg" else ""
        line = qemu(options.cache, options.accel, options.cpus, options.memory, f"guest={index}{clock}") + ["-serial", f"file:{self.folder}/console"]
        for name, path, more in (("root", "/", ",readonly=on,multidevs=remap"), ("out", self.folder, "")):
            line += ["-fsdev", f"local,id={name},path={path},security_model=none{more}", "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]
        for network in (switch.FABRIC, switch.REST):
            ends = f"local.type=unix,local.path={sockets}/{network}.{index}.guest,remote.type=unix,remote.path={sockets}/{network}.{index}.switch"
            line += ["-netdev", f"dgram,id=net{network},{ends}", "-device",
                     f"virtio-net-pci,netdev=net{network},mac={switch.hardware_address(network, index)},host_mtu=4200,romfile="]
        self.monitor = f"{sockets}/{index}.monitor"
        line += ["-chardev", f"socket,id=monitor,path={self.monitor},server=on,wait=off", "-mon", "chardev=monitor,mode=readline"]
        with open(f"{self.folder}/qemu", "w") as log:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

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
        """Plugs in (`on`) or pulls (`off`) the cable of the fabric's card."""
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
        """Prints what the job has said since the last time, in whole lines."""
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
    """All guests of a run, their networks, and the faults that are asked for."""

    def __init__(self, options):
        self.options = options
        self.sockets = tempfile.mkdtemp(prefix="mpix-rxe-")  # short: names of sockets have at most 107 letters
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
        # Nothing may come between: a guest that is left runs until somebody finds it.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        for guest in self.all:
            guest.kill()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def until(self, done, seconds):
        """True when `done` is, False when the time is up. The guests' words and questions have their turn meanwhile."""
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
        self.until(lambda: all(came(guest) or guest.process.poll() is not None for guest in self.all), self.options.boot_seconds)
        absent = [guest for guest in self.all if not came(guest) or guest.process.poll() is not None]
        if absent:
            for guest in absent:
                print(f"guest {guest.index} did not come up in {time.monotonic() - begin:.0f} s:")
                print("".join((guest.read(name) or "")[-2000:] for name in ("console", "qemu")), flush=True)
            return NEVER_UP
        self.hurry()
        print(f"{self.options.guests} up after {time.monotonic() - begin:.1f} s ({self.options.accel}, {self.options.cpus} CPU each)", flush=True)
        for guest in self.all:
            guest.write("go", "")
        in_time = self.until(lambda: all(self.ended(guest) for guest in self.all if guest.has_job), self.options.seconds)
        for guest in self.all:
            guest.show(self.prefix(guest), to_the_end=True)
        if self.options.loss or self.switch.lost:
            print(f"fabric: {self.switch.carried} frames carried, {self.switch.lost} lost", flush=True)
        if not in_time:
            print(f"still running after {self.options.seconds:.0f} s", flush=True)
            return TIME_LIMIT
        return next((status for _, status in sorted(self.status.items()) if status), 0)

    def hurry(self):
        """Puts the threads that carry frames before those that emulate processors. Programs in guests poll, so the latter never sleep, and where they
        take all of this machine a frame would wait for a turn at each of three hops."""
        try:
            for thread in [self.switch.native_id] + [guest.process.pid for guest in self.all]:
                os.setpriority(os.PRIO_PROCESS, thread, -10)
        except OSError:
            pass  # not root: slower, no more

    def ended(self, guest):
        """Whether the job of a guest is over, its exit status kept; one that was killed on purpose has none."""
        if guest.index not in self.status:
            said = guest.read("status")
            if said is not None:
                self.status[guest.index] = int(said)
            elif guest.killed:
                self.status[guest.index] = 0
            elif guest.process.poll() is not None:
                print(f"guest {guest.index} ended by itself:\n{(guest.read('console') or '')[-2000:]}", flush=True)
                self.status[guest.index] = 1
        return guest.index in self.status

    def answer(self, guest):
        """Does what files ask.NAME in the guest's folder ask for, each answered by a file answer.NAME."""
        for name in os.listdir(guest.folder):
            if name.startswith("ask.") and not name.endswith(".new"):
                words = (guest.read(name) or "").split()
                os.unlink(f"{guest.folder}/{name}")
                guest.write("answer." + name.removeprefix("ask."), self.fault(words) + "\n")

    def fault(self, words):
        """Does one command of `tests/rxe/fault`; what it says begins with ok or wrong."""
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
                return f"wrong: {words[0]} is not known"
            if later and len(words) > 2:
                threading.Timer(float(words[2]), later).start()
            return "ok"
        except (IndexError, ValueError, OSError) as error:
            return f"wrong: {' '.join(words)}: {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--guests", type=int, default=1)
    parser.add_argument("--first", action="store_true", help="the command runs in the first guest alone")
    parser.add_argument("--seconds", type=float, default=300, help="time limit of the command")
    parser.add_argument("--boot-seconds", type=float, default=150, help="time limit of coming up")
    parser.add_argument("--cpus", type=int, help="of each guest (default: 2 if there are as many per guest here, else 1)")
    parser.add_argument("--memory", type=int, default=1024, help="of each guest, in MiB")
    parser.add_argument("--spin", dest="patience", action="store_false", help="let programs poll as they like (patience.c says what is done about it)")
    parser.add_argument("--loss", type=float, default=0, help="share of the fabric's frames that get lost, such as 0.01")
    parser.add_argument("--seed", type=int, default=1, help="of the losses")
    parser.add_argument("--out", help="folder for results")
    parser.add_argument("--cache", default=prepare.FOLDER)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("no command")
    if not prepare.kernel_of(options.cache):
        parser.error("run prepare.py first")
    options.out = os.path.abspath(options.out or f"{options.cache}/out")
    # With more virtual CPUs than real ones, the guests wait for each other's.
    options.cpus = options.cpus or (2 if options.guests == 1 or len(os.sched_getaffinity(0)) >= 2 * options.guests else 1)
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
