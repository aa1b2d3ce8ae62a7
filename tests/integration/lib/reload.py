"""Changes of a daemon's configuration, and its reload."""
from lib.daemon import ini
from lib.session import Session


def write(daemon, changes=None, text=None):
    """Replaces the file: {'section.key': value or None} on top of what it was."""
    for name, value in (changes or {}).items():
        section, key = name.split('.')
        keys = daemon.sections.setdefault(section, {})
        if value is None:
            keys.pop(key, None)
        else:
            keys[key] = value
    with open(daemon.config_path, 'w', encoding='utf-8') as file:
        file.write(text if text is not None else ini(daemon.sections))


def reload(daemon, changes=None, text=None):
    write(daemon, changes, text)
    with Session(daemon.admin_path, hello=False) as admin:
        return admin.call('reload')
