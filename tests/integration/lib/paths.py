"""What the build hands to the tests, by environment variables (see ../meson.build)."""
import os
import shutil


class Missing(Exception):
    """Something that this host does not offer: the test is skipped, with the reason."""


def built(variable):
    """A file that the build made."""
    path = os.environ.get(variable)
    if not path:
        raise Missing(f'{variable} is not set; run this through meson test')
    if not os.path.exists(path):
        raise Missing(f'{variable}={path} does not exist')
    return path


def program(name):
    """A program of the host."""
    path = shutil.which(name)
    if not path:
        raise Missing(f'{name} is not installed')
    return path


def daemon():
    return built('GRD_DAEMON')


def module():
    return built('GRD_LARGEOBJ')


def client_library():
    return built('GRD_CLIENT_LIB')


def environment(interpreter=False, **changes):
    """Environment of a child process.

    With sanitizers an interpreter that loads our library needs their runtime before everything else, and cannot be
    checked for leaks; our programs bring it along; valkey-server and the module are built without.
    """
    result = dict(os.environ)
    result.pop('LD_PRELOAD', None)
    if interpreter and 'GRD_PRELOAD' in result:
        result['LD_PRELOAD'] = result['GRD_PRELOAD']
    options = [entry for entry in result.get('ASAN_OPTIONS', '').split(':') if entry and 'detect_leaks' not in entry]
    result['ASAN_OPTIONS'] = ':'.join(options + [f'detect_leaks={int(not interpreter)}'])
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = str(value)
    return result
