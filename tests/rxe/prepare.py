#!/usr/bin/env python3
"""Prepares what guests.py boots, in target/rxe: a stock kernel with soft-RoCE and an initial file
system.

  prepare.py [--folder DIR] [--check]

The kernel's package is only downloaded and unpacked, not installed. As root, missing programs
(qemu, busybox, ...) are installed by apt; otherwise their packages are named. Existing files are
kept; the last line says what there is. Exits with 3 and a line "cannot: ..." if this machine cannot
run such guests. --check does the same without downloads.

MPIX_GUEST_KERNEL selects another package than the distribution's newest kernel, such as
linux-image-6.12.0-1-amd64.
"""
import argparse
import glob
import gzip
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FOLDER = os.path.join(ROOT, "target", "rxe")
# Required programs, and the packages of Debian and Ubuntu that have them.
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "depmod": "kmod",
            "cpio": "cpio", "zstd": "zstd",
            "xz": "xz-utils", "rdma": "iproute2", "ib_write_lat": "perftest",
            "ibv_devices": "ibverbs-utils", "cc": "gcc"}
FILES = {"/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so": "ibverbs-providers",
         "/usr/include/infiniband/verbs.h": "libibverbs-dev"}
# Packages that depend on the newest kernel: Debian's, Ubuntu's.
KERNELS = ["linux-image-amd64", "linux-image-generic"]
# In this order; their dependencies are loaded first.
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net", "virtio_rng",
           "crc32_generic", "crc32c_generic", "rdma_ucm", "rdma_rxe"]


class Cannot(Exception):
    """The reason why this machine cannot run guests."""


def call(*words, **more):
    done = subprocess.run(words, capture_output=True, **more)
    if done.returncode:
        raise Cannot(f"`{' '.join(words[:6])}` failed: "
                     f"{done.stderr.decode(errors='replace').strip()[-300:]}")
    return done.stdout


def missing():
    """Packages of missing programs and files."""
    packages = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    packages += [package for pattern, package in FILES.items() if not glob.glob(pattern)]
    # A dynamic busybox needs libraries, which the initial file system lacks.
    busybox = shutil.which("busybox")
    if busybox and b"/ld-linux" in open(busybox, "rb").read(4096):
        packages.append("busybox-static")
    return packages


def install(packages):
    if os.geteuid() or not shutil.which("apt-get"):
        raise Cannot(f"these packages are missing: {' '.join(packages)}")
    print(f"installing: {' '.join(packages)}", flush=True)
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    line = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages]
    if subprocess.run(line, env=quiet, stdout=subprocess.DEVNULL).returncode:
        call("apt-get", "update", "-qq")
        call(*line, env=quiet)
    if missing():
        raise Cannot(f"these packages are still missing after installation: {' '.join(missing())}")


def kernel_package():
    """Name of the package with the kernel, which the distribution's newest one depends on."""
    if os.environ.get("MPIX_GUEST_KERNEL"):
        return os.environ["MPIX_GUEST_KERNEL"]
    for again in (False, True):
        for name in KERNELS:
            if again:
                call("apt-get", "update", "-qq")
            known = subprocess.run(["apt-cache", "depends", name], capture_output=True,
                                   text=True).stdout
            found = re.search(r"^ *Depends: (linux-image-\d\S*)$", known, re.M)
            if found:
                return found[1]
    raise Cannot(f"apt has no kernel package named {' or '.join(KERNELS)}")


def unpack_kernel(package, folder):
    """Unpacks the kernel's package in folder/kernel; Ubuntu has the modules in two more
    packages."""
    version = package.removeprefix("linux-image-")
    packages = [package]
    for more in (f"linux-modules-{version}", f"linux-modules-extra-{version}"):
        if subprocess.run(["apt-cache", "show", more], capture_output=True).returncode == 0:
            packages.append(more)
    shutil.rmtree(f"{folder}/packages", ignore_errors=True)
    shutil.rmtree(f"{folder}/kernel", ignore_errors=True)
    os.makedirs(f"{folder}/packages")
    sandbox = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
    call("apt-get", *sandbox, "-o", "Acquire::Retries=3", "-qq", "download", *packages,
         cwd=f"{folder}/packages")
    for name in sorted(os.listdir(f"{folder}/packages")):
        call("dpkg", "-x", f"{folder}/packages/{name}", f"{folder}/kernel")
    shutil.rmtree(f"{folder}/packages")
    call("depmod", "-b", f"{folder}/kernel", version)
    return version


def unpack_image(path):
    """The ELF file inside a compressed kernel: qemu starts it at once, while the image would
    decompress itself under emulation."""
    image = open(path, "rb").read()
    begin = ((image[0x1F1] or 4) + 1) * 512 + int.from_bytes(image[0x248:0x24C], "little")
    payload = image[begin:begin + int.from_bytes(image[0x24C:0x250], "little")]
    if payload.startswith(b"\xfd7zXZ\0"):
        payload = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)
    elif payload.startswith(b"\x28\xb5\x2f\xfd"):
        # The four bytes after the payload are its uncompressed length.
        payload = subprocess.run(["zstd", "-dcq"], input=payload, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL).stdout
    elif payload.startswith(b"\x1f\x8b"):
        payload = gzip.decompress(payload)
    if not payload.startswith(b"\x7fELF"):
        raise Cannot(f"{path} has an unknown compression")
    return payload


def modules_of(folder, version):
    """Files of all modules, dependencies first."""
    files = []
    for module in MODULES:
        steps = subprocess.run(["modprobe", "-d", f"{folder}/kernel", "-S", version,
                                "--show-depends", module], capture_output=True, text=True)
        if steps.returncode:
            raise Cannot(f"kernel {version} has no module {module}")
        for line in steps.stdout.splitlines():
            words = line.split()
            if words[0] == "insmod" and words[1] not in files:
                files.append(words[1])
    return files


def make_initial(folder, version):
    """Makes folder/initrd.img: busybox, the modules, and the script that mounts this machine's
    root."""
    tree = f"{folder}/initial"
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(f"{tree}/bin")
    os.makedirs(f"{tree}/modules")
    shutil.copy(shutil.which("busybox"), f"{tree}/bin/busybox")
    shutil.copy(f"{HERE}/guest-init", f"{tree}/init")
    os.chmod(f"{tree}/init", 0o755)
    unpack = {".xz": ["xz", "-dc"], ".zst": ["zstd", "-dcq"], ".gz": ["gzip", "-dc"]}
    names = []
    for path in modules_of(folder, version):
        stem, ending = os.path.splitext(os.path.basename(path))
        names.append(stem if ending in unpack else stem + ending)
        with open(f"{tree}/modules/{names[-1]}", "wb") as out:
            out.write(call(*unpack[ending], path) if ending in unpack else open(path, "rb").read())
    with open(f"{tree}/modules/order", "w") as order:
        order.write("\n".join(names) + "\n")
    packed = call("sh", "-c", "find . -print0 | cpio -0 -o -H newc --quiet", cwd=tree)
    with open(f"{folder}/initrd.img", "wb") as out:
        out.write(packed)
    shutil.rmtree(tree)


def kernel_of(folder):
    """The version of the kernel in the folder, or None."""
    try:
        return open(f"{folder}/version").read().strip()
    except OSError:
        return None


def prepare(folder, may_download=True):
    """Makes everything that is missing; raises Cannot."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Cannot("guests need x86-64 Linux")
    if missing():
        if not may_download:
            raise Cannot(f"these packages are missing: {' '.join(missing())}")
        install(missing())
    os.makedirs(folder, exist_ok=True)
    version = kernel_of(folder)
    if not version:
        if not may_download:
            raise Cannot("the kernel has not been downloaded")
        version = unpack_kernel(kernel_package(), folder)
        with open(f"{folder}/vmlinux", "wb") as out:
            out.write(unpack_image(f"{folder}/kernel/boot/vmlinuz-{version}"))
        with open(f"{folder}/version", "w") as out:  # last: marks the kernel as complete
            out.write(version + "\n")
    image = f"{folder}/initrd.img"
    sources = max(os.path.getmtime(f"{HERE}/{name}") for name in ("guest-init", "prepare.py"))
    if not os.path.exists(image) or os.path.getmtime(image) < sources:
        make_initial(folder, version)
    # Replaced atomically: a running guest may use the old one.
    call("cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"{HERE}/patience.c",
         "-o", f"{folder}/patience.{os.getpid()}")
    os.rename(f"{folder}/patience.{os.getpid()}", f"{folder}/patience.so")
    return version


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    try:
        version = prepare(options.folder, not options.check)
    except (Cannot, OSError) as reason:
        print(f"cannot: {reason}")
        return 3
    print(f"guests: kernel {version} in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
