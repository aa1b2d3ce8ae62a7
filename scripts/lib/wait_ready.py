#!/usr/bin/env python3
"""wait_ready.py SOCKET SECONDS: makes the datagram socket that a service finds in NOTIFY_SOCKET and waits until the
service says READY=1 there, as systemd does for Type=notify. Prints its last STATUS. Exit code 1: it did not say so.
"""
import os
import socket
import sys
import time

path, seconds = sys.argv[1], float(sys.argv[2])
end = time.monotonic() + seconds
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
receiver.bind(path + '.new')
os.chmod(path + '.new', 0o666)
os.rename(path + '.new', path)  # whoever waits for the path finds a socket that is bound

status = ''
while (left := end - time.monotonic()) > 0:
    receiver.settimeout(left)
    try:
        message = receiver.recv(65536).decode('utf-8', 'replace').split('\n')
    except TimeoutError:
        break
    for line in message:
        if line.startswith('STATUS='):
            status = line[len('STATUS='):]
    if 'READY=1' in message:
        print(status)
        sys.exit(0)
sys.exit(1)
