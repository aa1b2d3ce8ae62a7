"""The fabric of a daemon with faults: registrations and endpoints that take for ever to make or close, or fail to close, or pretend to.

tests/integration/faulty_fabric.c does what the files of a folder say.
"""
import os

from lib import paths, wait


class FaultyFabric:
    def __init__(self, folder):
        self.folder = folder
        os.chmod(folder, 0o777)

    @property
    def environment(self):
        """Of a daemon that shall have it."""
        return {'GLIDE_RDMAD_FABRIC_OBJECT': paths.built('GRD_FAULTY_FABRIC'),
                'GRD_REAL_OBJECT': paths.built('GRD_FABRIC_OBJECT'),
                'GRD_FABRIC_FAULTS': self.folder}

    def path(self, fault, size=None):
        return os.path.join(self.folder, fault if size is None else f'{fault}-{size}')

    def switch_on(self, fault, size=None):
        with open(self.path(fault, size), 'w', encoding='ascii'):
            pass

    def switch_off(self, fault, size=None):
        os.unlink(self.path(fault, size))

    def wait_begun(self, fault, size=None):
        """Until a call waits."""
        begun = self.path('began-' + fault, size)
        wait.until(lambda: os.path.exists(begun), f'{fault} of {size} bytes')
