"""A client process that can be killed: registers an inherited memory file and starts one transfer, then waits.

Usage: mover.py SOCKET FD SIZE get|set KEY
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lib.session import Session  # noqa: E402


def main(path, fd, size, method, key):
    session = Session(path)
    region = session.call('region.register', fds=(int(fd),), type='memfd', size=int(size))['region']
    os.close(int(fd))
    number = session.request(f'transfer.{method}', region=region, offset=0, length=int(size), key=key)
    print('sent', flush=True)
    print(session.outcome(number, 3600), flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
