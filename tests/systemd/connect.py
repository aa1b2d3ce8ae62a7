"""Inside: connects (and closes), once, or until a file is gone; prints how often it succeeded, and every error.

connect.py PATH [FILE]      with FILE it says "begun" after the first time, and connects once more when the file is gone
"""
import os
import socket
import sys
import time

done, errors, begun, more = 0, set(), False, True
while more:
    more = len(sys.argv) > 2 and os.path.exists(sys.argv[2])
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(10)
            s.connect(sys.argv[1])
            done += 1
    except OSError as error:
        errors.add(type(error).__name__)
    if more:
        if not begun:
            print('begun', flush=True)
        begun = True
        time.sleep(0.1) # while nobody accepts the socket holds a few hundred
print(done, *sorted(errors))
