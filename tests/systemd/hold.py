"""Inside: registers a region of so many bytes, says so, and holds it until the file is gone.

hold.py PATH BYTES FILE
"""
import os
import sys
import time

from protocol_client import Client, Memory, Refused

with Client(sys.argv[1]) as client:
    client.hello()
    memory = Memory(int(sys.argv[2]))
    try:
        client.register(memory)
        print('registered', flush=True)
    except Refused as refused:
        print(refused.name, *(f'{name}={refused.data.get(name)}' for name in ('budget', 'used', 'limit', 'asked')),
              flush=True)
    while os.path.exists(sys.argv[3]):
        time.sleep(0.05)
