"""Inside: connects (and closes) for some seconds; prints how often it succeeded, and every error.

connect.py PATH SECONDS
"""
import socket
import sys
import time

end, done, errors = time.monotonic() + float(sys.argv[2]), 0, set()
while True:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(10)
            s.connect(sys.argv[1])
            done += 1
    except OSError as error:
        errors.add(type(error).__name__)
    if time.monotonic() >= end:
        break
    time.sleep(0.01)
print(done, *sorted(errors))
