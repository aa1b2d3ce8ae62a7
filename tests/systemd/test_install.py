#!/usr/bin/env python3
"""meson install puts everything in place, for the prefix of this build and for another, and leaves operators' files alone.

Usage: test_install.py --build BUILD --source SOURCE --prefix PREFIX --sysconfdir SYSCONFDIR      TAP
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

# In the folders of meson's options; {lib} is libdir, {unit} and {sysusers} are systemd's.
FILES = """
{unit}/glide-rdmad-admin.socket
{unit}/glide-rdmad.service
{unit}/glide-rdmad.socket
{sysusers}/glide-rdmad.conf
{prefix}/bin/glide-rdmactl
{prefix}/bin/glide-rdmad-demo
{prefix}/include/glide-rdmad.h
{lib}/glide-rdmad/glide-rdmad-fabric.so
{lib}/glide-rdmad/glide-rdmad-valkey-rdma.so
{lib}/libglide-rdmad-client.so
{lib}/libglide-rdmad-client.so.0
{lib}/libglide-rdmad-client.so.0.1.0
{lib}/pkgconfig/glide-rdmad-client.pc
{prefix}/sbin/glide-rdmad
{prefix}/share/bash-completion/completions/glide-rdmactl
{prefix}/share/bash-completion/completions/glide-rdmad
{doc}/PROTOCOL.md
{doc}/architecture.md
{doc}/operations.md
{doc}/examples/batch.conf
{doc}/examples/glide-rdmad-batch.socket
{doc}/examples/glide-rdmad.conf
{doc}/examples/kubernetes.yaml
{doc}/examples/override.conf
{doc}/examples/allocator.c
{doc}/examples/cuda_host_register.c
{doc}/examples/event_loop.c
{doc}/examples/huge_pages.c
{doc}/examples/numpy_region.py
{doc}/examples/refused.c
"""
MANUAL = """
{prefix}/share/man/man1/glide-rdmactl.1
{prefix}/share/man/man3/glide-rdmad-client.3
{prefix}/share/man/man5/glide-rdmad.conf.5
{prefix}/share/man/man8/glide-rdmad.8
"""


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL, **options)
    assert done.returncode == 0, f'{" ".join(command)}: exit status {done.returncode}: {done.stdout[-2000:]}'
    return done.stdout


def variable(name):
    return run('pkg-config', f'--variable={name}', 'systemd').strip()


def wanted(prefix, options):
    """The files of an installation."""
    text = FILES + (MANUAL if shutil.which('scdoc') else '')
    return sorted(text.format(prefix=prefix, lib=os.path.join(prefix, options['libdir']),
                              doc=f'{prefix}/share/doc/glide-rdmad',
                              unit=options['systemd_unit_dir'] or variable('systemdsystemunitdir'),
                              sysusers=options['sysusers_dir'] or variable('sysusersdir')).split())


def options_of(build):
    return {option['name']: option['value'] for option in json.loads(run('meson', 'introspect', '--buildoptions',
                                                                         build))}


class Install:

    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.root = os.path.join(folder, 'root')
        self.prefix = arguments.prefix
        self.example = f'{self.root}{self.prefix}/share/doc/glide-rdmad/examples/glide-rdmad.conf'

    def install(self):
        run('meson', 'install', '-C', self.arguments.build, '--destdir', self.root, '--no-rebuild')

    def daemon(self, *words):
        return run(f'{self.root}{self.prefix}/sbin/glide-rdmad', *words)

    def test_files(self):
        """every file is where it belongs, and no other is there"""
        operators = f'{self.root}{self.arguments.sysconfdir}/glide-rdmad/glide-rdmad.conf'
        os.makedirs(os.path.dirname(operators))
        with open(operators, 'w', encoding='utf-8') as file:
            file.write('# the operator\'s\n')
        self.install()
        self.install() # over itself, as an upgrade does
        found = sorted(os.path.join(folder, name)[len(self.root):] for folder, _, names in os.walk(self.root)
                       for name in names)
        with open(operators, encoding='utf-8') as file:
            assert file.read() == '# the operator\'s\n', 'the configuration was replaced'
        found.remove(operators[len(self.root):])
        files = wanted(self.prefix, options_of(self.arguments.build))
        assert found == files, f'missing {sorted(set(files) - set(found))}, surplus {sorted(set(found) - set(files))}'
        assert os.path.isdir(os.path.dirname(operators) + '/conf.d')

    def test_paths(self):
        """programs, unit and manual name the folders they were built for"""
        path = f'{self.arguments.sysconfdir}/glide-rdmad/glide-rdmad.conf'
        assert f'(default {path})' in self.daemon('--help'), self.daemon('--help')
        unit = [name for name in wanted(self.prefix, options_of(self.arguments.build)) if name.endswith('.service')][0]
        with open(self.root + unit, encoding='utf-8') as file:
            text = file.read()
        assert f'\nExecStart={self.prefix}/sbin/glide-rdmad\n' in text
        assert f'file:{self.prefix}/share/doc/glide-rdmad/operations.md' in text
        assert not re.search(r'@\w+@', text), text
        if shutil.which('scdoc'):
            with open(f'{self.root}{self.prefix}/share/man/man5/glide-rdmad.conf.5', encoding='utf-8') as file:
                assert path in file.read().replace('\\&', '').replace('\\', ''), 'the manual page names another configuration'

    def test_example(self):
        """the example, with every key made active, is a good configuration; each number has a unit or is a count"""
        with open(self.example, encoding='utf-8') as file:
            lines = file.read().splitlines()
        keys = [line for line in lines if line.startswith('#') and not line.startswith('# ')]
        assert len(keys) > 30, keys
        path = os.path.join(self.folder, 'active.conf')
        with open(path, 'w', encoding='utf-8') as file:
            file.write('\n'.join(line[1:] if line in keys else line for line in lines) + '\n')
        self.daemon('--check-config', '--config', path)
        for meaning, key in zip(lines, lines[1:]):
            if key.split(' ')[0].endswith('_ms'):
                assert '(ms)' in meaning, (meaning, key)
            if key.split(' ')[0].endswith(('_bytes', '_limit')):
                assert '(bytes)' in meaning, (meaning, key)

    def test_other_prefix(self):
        """with the other of /usr and /usr/local as prefix, the same files go to its folders"""
        prefix = '/usr/local' if self.prefix == '/usr' else '/usr'
        build = os.path.join(self.folder, 'other')
        run('meson', 'setup', f'--prefix={prefix}', '-Dtests=false', build, self.arguments.source)
        plan = json.loads(run('meson', 'introspect', '--installed', build))
        files = wanted(prefix, options_of(build))
        found = sorted(set(plan.values()))
        folder = '/etc' if prefix == '/usr' else '/usr/local/etc'
        assert set(files) - set(found) - {f for f in files if '.so' in f} == set(), sorted(set(files) - set(found))
        with open(f'{build}/systemd/glide-rdmad.service', encoding='utf-8') as file:
            assert f'\nExecStart={prefix}/sbin/glide-rdmad\n' in file.read()
        with open(f'{build}/compile_commands.json', encoding='utf-8') as file:
            assert f'GRD_SYSCONFDIR=\\"{folder}\\"' in file.read().replace('\\\\', '\\'), 'folder of the configuration'


def main():
    parser = argparse.ArgumentParser()
    for name in ('build', 'source', 'prefix', 'sysconfdir'):
        parser.add_argument(f'--{name}', required=True)
    arguments = parser.parse_args()
    if shutil.which('meson') is None or shutil.which('pkg-config') is None:
        print('1..0 # SKIP no meson or pkg-config here')
        return 0
    tests = [test for name, test in vars(Install).items() if name.startswith('test_')]
    print(f'1..{len(tests)}')
    failed = 0
    with tempfile.TemporaryDirectory(prefix='glide-rdmad-install.') as folder:
        install = Install(arguments, folder)
        for number, test in enumerate(tests, 1):
            try:
                test(install)
                print(f'ok {number} - {test.__doc__}', flush=True)
            except Exception as error: # pylint: disable=broad-except
                failed += 1
                print(f'not ok {number} - {test.__doc__}')
                print(*(f'# {line}' for line in f'{type(error).__name__}: {error}'.splitlines()), sep='\n', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
