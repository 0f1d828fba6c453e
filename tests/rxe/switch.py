"""The networks of the guests: Ethernet switches between unix datagram sockets, on which frames can be lost.

Each guest has a card on each of two networks: the fabric (number 0), over which soft-RoCE goes and where faults are made, and another
one (number 1) for everything else, as clusters have it; so what starts and ends a job works whatever happens on the fabric.
qemu sends each frame of a card to a socket of ours and takes frames on one of its own: no port, no privilege, and
nothing leaves the machine.
"""
import collections
import os
import random
import select
import socket
import threading

FABRIC, REST = 0, 1
# Frames that wait for a guest that is slow to take them; more are lost, as in any switch.
WAITING_MAX = 8192


def hardware_address(network, guest):
    return f"52:54:00:77:{network:02x}:{guest:02x}"


class Port:
    """One card of a guest, and what waits to be sent to it."""

    def __init__(self, folder, network, guest, seed):
        self.network, self.guest = network, guest
        self.ours, self.theirs = f"{folder}/{network}.{guest}.switch", f"{folder}/{network}.{guest}.guest"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.socket.bind(self.ours)
        self.connected = False
        self.waiting = collections.deque()
        # One for each port, so that what one guest loses does not depend on how much others send.
        self.random = random.Random(f"{seed} {network} {guest}")

    def reachable(self):
        """Connected, the socket says when there is room again."""
        if not self.connected:
            try:
                self.socket.connect(self.theirs)
                self.connected = True
            except OSError:
                pass
        return self.connected

    def flush(self):
        """Sends what waits, as far as there is room."""
        while self.waiting:
            try:
                self.socket.send(self.waiting[0])
            except BlockingIOError:
                return
            except OSError:  # the guest is gone
                self.waiting.clear()
                return
            self.waiting.popleft()


class Switch(threading.Thread):
    """Both networks. `loss` is the share of the fabric's frames that get lost, `down` has the guests whose port on the fabric is closed."""

    def __init__(self, folder, guests, loss, seed):
        super().__init__(daemon=True)
        self.loss, self.down = loss, set()
        self.carried, self.lost = 0, 0
        self.ports = [[Port(folder, network, guest, seed) for guest in range(guests)] for network in (FABRIC, REST)]
        self.poll = select.epoll()
        self.of = {}
        for port in sum(self.ports, []):
            self.of[port.socket.fileno()] = port
            self.poll.register(port.socket.fileno(), select.EPOLLIN)

    def run(self):
        while True:
            for number, events in self.poll.poll():
                port = self.of[number]
                if events & select.EPOLLOUT:
                    port.flush()
                    if not port.waiting:
                        self.poll.modify(number, select.EPOLLIN)
                if events & ~select.EPOLLOUT:
                    self.take(port)

    def take(self, port):
        """Some frames of a card; the others have their turn then."""
        for _ in range(64):
            try:
                frame = port.socket.recv(1 << 16)
            except OSError:
                return
            ports = self.ports[port.network]
            if frame[0] & 1:
                targets = ports
            else:
                targets = ports[frame[5]:frame[5] + 1] if frame[:4] == b"\x52\x54\x00\x77" else []
            for target in targets:
                if target is not port:
                    self.forward(frame, port, target)

    def forward(self, frame, origin, target):
        if origin.network == FABRIC:
            if origin.guest in self.down or target.guest in self.down or (self.loss and origin.random.random() < self.loss):
                self.lost += 1
                return
            self.carried += 1
        if target.reachable() and len(target.waiting) < WAITING_MAX:
            target.waiting.append(frame)
            target.flush()
            if target.waiting:
                self.poll.modify(target.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
