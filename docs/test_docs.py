#!/usr/bin/env python3
"""Compares the documents with the sources.

Usage: test_docs.py SOURCE DAEMON CTL CLIENT_HEADER        TAP on standard output
"""
import os
import re
import subprocess
import sys

SOURCE, DAEMON, CTL, HEADER = sys.argv[1:5]


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding='utf-8') as file:
        return file.read()


def say(option, program=DAEMON):
    return subprocess.run([program, option], stdout=subprocess.PIPE, text=True, check=True).stdout


def same(name, found, wanted):
    """Compares two collections and names the differences."""
    missing, surplus = set(wanted) - set(found), set(found) - set(wanted)
    assert not missing and not surplus, f'{name}: missing {sorted(missing)}, surplus {sorted(surplus)}'


def test_configuration():
    """glide-rdmad.conf(5): every key and default of --print-example-config, and whether it reloads, and no other"""
    section, program, before = '', set(), ''
    for line in say('--print-example-config').splitlines():
        if line.startswith('['):
            section = line.strip('[]').split()[0]
        elif match := re.fullmatch(r'#(\w+) = ?(.*)', line):
            program.add((section, match[1], match[2] or 'none', before.endswith(' [reload]')))
        before = line
    page = set()
    for part in re.split(r'^# SECTION \[', read('docs/glide-rdmad.conf.5.scd'), flags=re.M)[1:]:
        section = re.match(r'\w+', part)[0]
        for key, text in re.findall(r'^\*(\w+)\* = .*\n((?:\t.*\n)+)', part, flags=re.M):
            default = re.search(r'Default: (\S+)\.(\s+Reload: yes\.)?$', text.strip())
            stated = (default[1].replace('\\', ''), default[2] is not None) if default else ('not stated',)
            page.add((section, key, *stated))
    assert len(program) > 20, program
    same('keys', page, program)


def test_options():
    """glide-rdmad(8): every option of --help, and no other"""
    page = read('docs/glide-rdmad.8.scd')
    options = page[page.index('# OPTIONS'):page.index('# SIGNALS')]
    described = re.findall(r'^(?:\*-\w\*, )?\*(--[\w-]+)\*', options, flags=re.M)
    same('options', described, re.findall(r'--[a-z][\w-]*', say('--help')))


def section(page, heading):
    """The text of a section of a manual page."""
    return re.search(rf'^# {heading}\n(.*?)(?=^# |\Z)', read('docs', page), flags=re.M | re.S)[1]


def test_commands():
    """glide-rdmactl(1): every command and option of --help, and no other"""
    told = say('--help', CTL)
    described = re.findall(r'^\*[a-z].*$', section('glide-rdmactl.1.scd', 'COMMANDS'), flags=re.M)
    described = [name for line in described for name in re.findall(r'\*([a-z][a-z-]*)\*', line)]
    same('commands', described, re.findall(r'^  ([a-z][a-z-]*) ', told, flags=re.M))
    described = re.findall(r'^(?:\*-\w\*, )?\*(--[\w-]+)\*', section('glide-rdmactl.1.scd', 'OPTIONS'), flags=re.M)
    same('options', described, re.findall(r'^  (?:-\w, )?(--[a-z][\w-]*)', told, flags=re.M))


def test_synopsis():
    """glide-rdmactl(1): the synopsis has every command of --help"""
    shown = re.findall(r'\*([a-z][a-z-]*)\*', section('glide-rdmactl.1.scd', 'SYNOPSIS').replace('*glide-rdmactl*', ''))
    same('synopsis', shown, re.findall(r'^  ([a-z][a-z-]*) ', say('--help', CTL), flags=re.M))


def statuses(page):
    return re.findall(r'^\*(\d+)\*$', section(page, 'EXIT STATUS'), flags=re.M)


def test_exit_statuses():
    """every exit status of both programs is in their manual pages, and no other; the daemon's in operations.md too"""
    own = re.findall(r'#define EXIT_STATUS_\w+ (\d+)', read('daemon/stop.h'))
    assert len(own) >= 3, own
    same('glide-rdmad(8)', statuses('glide-rdmad.8.scd'), ['0', '1', *own])
    page = read('docs/operations.md')
    table = re.search(r'^## Exit statuses\n(.*?)^## ', page, flags=re.M | re.S)[1]
    same('operations.md', re.findall(r'^\| (\d+) \|', table, flags=re.M), ['0', '1', *own])
    ctl = re.findall(r'^\s+CTL_\w+ = (\d+)', read('client/ctl/exit.h'), flags=re.M)
    assert len(ctl) > 10, ctl
    same('glide-rdmactl(1)', statuses('glide-rdmactl.1.scd'), ctl)


def test_restarts():
    """operations.md and the unit agree on the statuses after which the daemon is started again"""
    unit = read('systemd/glide-rdmad.service.in')
    table = read('docs/operations.md').split('## Exit statuses')[1]
    never = re.search(r'^RestartPreventExitStatus=(.*)$', unit, flags=re.M)[1].split()
    same('never', re.findall(r'^\| (\d+) \| .* \| no\b', table, flags=re.M), ['0', *never])
    always = re.search(r'^RestartForceExitStatus=(.*)$', unit, flags=re.M)[1].split()
    assert set(always) <= set(re.findall(r'^\| (\d+) \| .* \| yes\b', table, flags=re.M)), always


def test_first_trouble():
    """the first entry of troubleshooting is the memlock limit, in the README and for operators"""
    for page, heading in (('README.md', '## When it does not work'), ('docs/operations.md', '## Troubleshooting')):
        first = read(page).split(heading + '\n')[1].split('\n* ')[1]
        for word in ('ulimit -l', 'LimitMEMLOCK', 'limits.conf'):
            assert word in first, f'{page}: {word}: {first}'


def test_functions():
    """glide-rdmad-client(3) and the version script: every function of the header, and no other"""
    with open(HEADER, encoding='utf-8') as file:
        header = re.sub(r'/\*.*?\*/', '', file.read(), flags=re.S)
    declared = re.findall(r'^GRD_API [^;(]*?(grd_\w+)\(', header, flags=re.M)
    assert len(declared) == header.count('GRD_API ') - header.count('define GRD_API '), declared
    page = read('docs/glide-rdmad-client.3.scd')
    listed = page[page.index('# FUNCTIONS'):page.index('# ERRORS')]
    described = [name for line in listed.splitlines() if line.startswith('*')
                 for name in re.findall(r'\*(grd_\w+)\*\(\)', line)]
    same('manual page', described, declared)
    same('version script', re.findall(r'^\s+(grd_\w+);', read('client/glide-rdmad-client.map'), flags=re.M), declared)


def test_error_names_of_pages():
    """GRD_ERR_ constants that the manual page and the README name exist"""
    with open(HEADER, encoding='utf-8') as file:
        header = file.read()
    for name in re.findall(r'GRD_[A-Z_]+[A-Z]', read('docs/glide-rdmad-client.3.scd') + read('README.md')):
        assert name == 'GRD_ERR' or re.search(rf'\b{name}\b', header), f'{name} is not in the header'


def test_errors():
    """PROTOCOL.md and operations.md: every error, and no other"""
    entries = set(re.findall(r'X\(\w+, (-\d+), "(\w+)"', read('proto/errors.h')))
    assert len(entries) > 20, entries
    page = read('proto/PROTOCOL.md')
    table = page[page.index('\n## Errors'):]
    table = table[:table.index('\n## ', 4)]
    same('errors', re.findall(r'^\| (-\d+) \| `(\w+)` \|', table, flags=re.M), entries)
    table = re.search(r'^## Reading the errors\n(.*?)^## ', read('docs/operations.md'), flags=re.M | re.S)[1]
    same('operations.md', re.findall(r'^\| `(\w+)` \|', table, flags=re.M), [name for _, name in entries])


def test_metrics():
    """docs/operations.md: name, type and meaning of every metric, and no other"""
    suffixes = {'COUNTER': '_total', 'INFO': '_info'}
    source = read('daemon/admin/metrics.h').replace('\\\n', '\n')
    listed = re.findall(r'X\(\w+, "(glide_\w+)", (\w+), "\w*",\s*"([^"]+)"\)', source)
    assert len(listed) == source.count('"glide_') > 20, listed
    page = re.findall(r'^\| `(glide_\w+)` \| (\w+) \| [^|]* \| (.*) \|$', read('docs/operations.md'), flags=re.M)
    same('metrics', page, {(name + suffixes.get(kind, ''), kind.lower(), text) for name, kind, text in listed})


def test_log_events():
    """glide-rdmad(8): name, MESSAGE_ID and meaning of every event of the log, and no other"""
    source = read('daemon/base/log_events.h').replace('\\\n', '\n')
    listed = re.findall(r'X\(\w+, "(\w+)", "(\w{32})", "([^"]+)"\)', source)
    assert len(listed) > 5 and len({entry[1] for entry in listed}) == len(listed), listed
    page = re.findall(r'^\|  (\w+)\n:  (\w+)\n:  (.*)\.$', read('docs/glide-rdmad.8.scd'), flags=re.M)
    same('events', page, listed)


def heading_anchors(text):
    """As hosting sites make them."""
    return {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')
            for heading in re.findall(r'^#+ (.*)$', re.sub(r'^```.*?^```', '', text, flags=re.M | re.S), flags=re.M)}


def test_links():
    """links of the README and the pages lead to files and headings"""
    pages = ['README.md', 'docs/architecture.md', 'docs/operations.md', 'proto/PROTOCOL.md']
    count = 0
    for page in pages:
        for target in re.findall(r'\]\(([^)\s]+)\)', read(page)):
            if target.startswith(('http://', 'https://')):
                continue
            path, _, anchor = target.partition('#')
            file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            assert os.path.exists(os.path.join(SOURCE, file)), f'{page}: {target}: no such file'
            assert not anchor or anchor in heading_anchors(read(file)), f'{page}: {target}: no such heading'
            count += 1
    assert count > 5, count


def sources():
    for top in ('proto', 'daemon', 'client', 'tests', 'bench', 'scripts', 'systemd'):
        for folder, _, names in os.walk(os.path.join(SOURCE, top)):
            for name in names:
                if name.endswith(('.c', '.h', '.in', '.py', '.md', '.sh')):
                    yield os.path.relpath(os.path.join(folder, name), SOURCE)


def test_references():
    """sections and rules of docs/architecture.md that sources refer to exist"""
    page = read('docs/architecture.md')
    headings = set(re.findall(r'^##+ (.*)$', page, flags=re.M))
    rules = len(re.findall(r'^\d+\. \*\*', page, flags=re.M))
    count = 0
    for path in sources():
        # Comments may be broken anywhere.
        text = re.sub(r'\s+(?:[*#/]+\s+)?', ' ', read(path))
        for place in re.findall(r'docs/architecture\.md,([^).]*)', text):
            for heading in re.findall(r'"([^"]+)"', place):
                assert heading in headings, f'{path}: "{heading}"'
                count += 1
            for rule in re.findall(r'rules? (\d+)', place):
                assert 1 <= int(rule) <= rules, f'{path}: rule {rule}'
                count += 1
    assert rules == 8 and count > 5, (rules, count)


def test_example():
    """README.md: the C example is client/demo/example.c"""
    blocks = re.findall(r'^```c\n(.*?)^```$', read('README.md'), flags=re.M | re.S)
    assert blocks == [read('client/demo/example.c')], 'they differ'


def main():
    tests = [test for name, test in globals().items() if name.startswith('test_')]
    print(f'1..{len(tests)}')
    failed = 0
    for number, test in enumerate(tests, 1):
        try:
            test()
            print(f'ok {number} - {test.__doc__}', flush=True)
        except Exception as error: # pylint: disable=broad-except
            failed += 1
            print(f'not ok {number} - {test.__doc__}')
            print(f'# {type(error).__name__}: {error}', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
