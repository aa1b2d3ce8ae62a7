"""A machine with systemd: one that is booted on a throw-away overlay (scripts/lib/systemd-box), for use inside
isolation.run(), or the one that we are on."""
import os
import subprocess
import tempfile


class BoxError(Exception):
    pass


class ThisHost:
    """The machine itself. `prefix` is what makes a command run inside, `root` the folder that is "/" there."""

    prefix, root = (), ''

    def run(self, *command, timeout=120, **options):
        """Runs a command inside as root; the finished process, with its output as text."""
        return subprocess.run([*self.prefix, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace', timeout=timeout, check=False,
                              **options)

    def must(self, *command, **options):
        """As run(), but a failure is an AssertionError with what the command said."""
        done = self.run(*command, **options)
        assert done.returncode == 0, f'{" ".join(command)}: exit status {done.returncode}: {done.stdout.strip()}'
        return done.stdout.strip()

    def start(self, *command):
        """Starts a command inside and does not wait for it."""
        return subprocess.Popen([*self.prefix, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors='replace')


class Box(ThisHost):
    """Use as a context manager, on an empty folder."""

    def __init__(self, source, folder):
        self.tool = os.path.join(source, 'scripts/lib/systemd-box')
        self.folder = folder
        self.root = os.path.join(self.folder, 'root')
        self.prefix = ('bash', self.tool, 'exec', self.folder)

    def __enter__(self):
        try:
            self._tool('start', self.folder)
        except BoxError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._tool('stop', self.folder)

    def _tool(self, *arguments):
        # Output to a file: what stays running inside would hold a pipe open.
        with tempfile.TemporaryFile('w+', encoding='utf-8', errors='replace') as output:
            status = subprocess.run(['bash', self.tool, *arguments], stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=output, check=False).returncode
            output.seek(0)
            if status != 0:
                lines = output.read().strip().splitlines() or ['no message']
                raise BoxError('; '.join(lines[-3:]))
