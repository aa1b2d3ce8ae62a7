"""Huge pages of the host, which all tests that run at the same time share."""
import fcntl
import os
import tempfile

from lib import tap

HUGE = 2 << 20
_POOL = '/sys/kernel/mm/hugepages/hugepages-2048kB/'


def pool(name):
    try:
        with open(_POOL + name, encoding='ascii') as file:
            return int(file.read())
    except OSError as error:
        raise tap.Skip(f'no huge pages of 2 MiB: {error}') from None


def _set_pool(pages):
    try:
        with open(_POOL + 'nr_hugepages', 'w', encoding='ascii') as file:
            file.write(str(pages))
    except OSError as error:
        raise tap.Skip(f'the pool of huge pages cannot be changed: {error}') from None


class Pages:
    """So many free huge pages more, and nobody else's test uses or changes the pool, for the time of a with block."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        path = os.path.join(tempfile.gettempdir(), 'glide-rdmad-test-huge-pages')
        self.lock = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            self._add()
        except BaseException:
            os.close(self.lock)
            raise
        return self

    def _add(self):
        self.before = pool('nr_hugepages')
        _set_pool(self.before + self.count)
        if pool('nr_hugepages') < self.before + self.count or pool('free_hugepages') < self.count:
            _set_pool(self.before)
            raise tap.Skip(f'the kernel has not {self.count} huge pages')

    def __exit__(self, *_):
        try:
            _set_pool(self.before)
        finally:
            os.close(self.lock)
