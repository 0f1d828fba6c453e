"""The guests' networks: Ethernet switches between unix datagram sockets, which can drop frames.

Each guest has a card on two networks: the fabric (number 0), for soft-RoCE and faults, and another
one (number 1) for everything else, as clusters have it. So jobs start and end whatever happens on
the fabric. qemu sends each frame of a card to a socket of the switch and receives on one of its
own: this needs no port and no privilege, and nothing leaves the machine.
"""
import collections
import os
import random
import select
import socket
import threading

FABRIC, REST = 0, 1
# Frames queued for a slow guest; more are dropped, as in any switch.
WAITING_MAX = 8192


def hardware_address(network, guest):
    return f"52:54:00:77:{network:02x}:{guest:02x}"


class Port:
    """One card of a guest, and the frames queued for it."""

    def __init__(self, folder, network, guest, seed):
        self.network, self.guest = network, guest
        self.ours = f"{folder}/{network}.{guest}.switch"
        self.theirs = f"{folder}/{network}.{guest}.guest"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.socket.bind(self.ours)
        self.connected = False
        self.waiting = collections.deque()
        # One per port, so that one guest's losses do not depend on the others' traffic.
        self.random = random.Random(f"{seed} {network} {guest}")

    def reachable(self):
        """Whether the socket is connected; only then epoll reports when there is room."""
        if not self.connected:
            try:
                self.socket.connect(self.theirs)
                self.connected = True
            except OSError:
                pass
        return self.connected

    def flush(self):
        """Sends queued frames while there is room."""
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
    """Both networks. `loss` is the share of the fabric's frames to drop, `down` has the guests
    whose fabric port carries nothing."""

    def __init__(self, folder, guests, loss, seed):
        super().__init__(daemon=True)
        self.loss, self.down = loss, set()
        self.carried, self.lost = 0, 0
        self.ports = [[Port(folder, network, guest, seed) for guest in range(guests)]
                      for network in (FABRIC, REST)]
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
        """Forwards some frames of a card, then returns so that others get their turn."""
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
            dropped = self.loss and origin.random.random() < self.loss
            if origin.guest in self.down or target.guest in self.down or dropped:
                self.lost += 1
                return
            self.carried += 1
        if target.reachable() and len(target.waiting) < WAITING_MAX:
            target.waiting.append(frame)
            target.flush()
            if target.waiting:
                self.poll.modify(target.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
