"""A client without privileges: moves values through the library, and prints what it is and what came of it.

Usage: unprivileged.py SOCKET BYTES
"""
import os
import resource
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lib import grd  # noqa: E402
from lib.memory import noise  # noqa: E402


def capabilities():
    with open('/proc/self/status', encoding='ascii') as file:
        return next(line.split()[1] for line in file if line.startswith('CapEff'))


def main(path, size):
    size = int(size)
    data = noise(size, seed=2)
    with grd.Client(path) as client:
        region = client.create(2 * size)
        region.write(0, data)
        region.set(b'unprivileged', 0, size, checksum=grd.CHECKSUM_COMPUTE)
        receipt = region.get(b'unprivileged', size, size)
        same = region.read(size, size) == data
        region.close()
    print(f'uid {os.getuid()} memlock {resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]} caps {int(capabilities(), 16)} '
          f'verified {receipt.verified} same {same}')


if __name__ == '__main__':
    main(*sys.argv[1:])
