"""Several interfaces: lanes on both of two links to the server, and one that fails is left out and tried again.

The server runs in a network namespace of the test, the daemon in another one; two pairs of veth connect them.
"""
import json
import os
import subprocess

from lib import expect, paths, tap, wait
from lib.session import Session
from lib.stage import Stage

SIZE = 4 << 20
HELD = []


def ip(*words, inside=None):
    command = ['nsenter', '-t', str(inside), '-n'] if inside else []
    subprocess.run([*command, paths.program('ip'), *words], check=True, capture_output=True)


def settle_addresses(number, inside):
    """Link a<number> to b<number>; peers may answer on the other link."""
    ip('link', 'add', f'a{number}', 'type', 'veth', 'peer', 'name', f'b{number}', 'netns', str(inside))
    for name, host, where in (('a', 1, None), ('b', 2, inside)):
        ip('address', 'add', f'10.77.{number}.{host}/24', 'dev', f'{name}{number}', inside=where)
        ip('link', 'set', f'{name}{number}', 'up', inside=where)


def is_up(name, inside):
    """The kernel says so a while after both ends are set up, and only then libfabric lists it."""
    command = ['nsenter', '-t', str(inside), '-n', paths.program('ip'), '-j', 'link', 'show', 'dev', name]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)[0]['operstate'] == 'UP'


def loosen(inside):
    for link in 'all', 'default':
        path = f'/proc/sys/net/ipv4/conf/{link}/rp_filter'
        subprocess.run(['nsenter', '-t', str(inside), '-n', 'sh', '-c', f'echo 0 >{path}'], check=True)


def two_namespaces():
    """Process id of one that holds the daemon's namespace."""
    if HELD:
        return HELD[0].pid
    if os.getuid() != 0:
        raise tap.Skip('needs root to make network namespaces')
    try:
        os.unshare(os.CLONE_NEWNET)
        other = subprocess.Popen(['unshare', '-n', 'sh', '-c', 'echo ready; exec sleep 1000'], stdout=subprocess.PIPE)
        other.stdout.readline()
        HELD.append(other)
        for where in (None, other.pid):
            ip('link', 'set', 'lo', 'up', inside=where)
        for number in 0, 1:
            settle_addresses(number, other.pid)
        for where in (os.getpid(), other.pid):
            loosen(where)
        for number in 0, 1:
            wait.until(lambda: is_up(f'b{number}', other.pid) and is_up(f'a{number}', os.getpid()), 'links')
    except (OSError, subprocess.CalledProcessError) as error:
        raise tap.Skip(f'network namespaces cannot be made here: {error}') from error
    return other.pid


def server(stage, interfaces):
    return stage.other_valkey(options={'protected-mode': 'no', 'bind': ['127.0.0.1', '10.77.0.1', '10.77.1.1']},
                              module_options={'fabric-interfaces': interfaces})


def daemon_inside(stage, inside, valkey, interfaces):
    """The daemon, run in the other namespace."""
    script = os.path.join(stage.new_folder(), 'glide-rdmad')
    with open(script, 'w', encoding='utf-8') as file:
        file.write(f'#!/bin/sh\nexec nsenter -t {inside} -n {paths.daemon()} "$@"\n')
    os.chmod(script, 0o755)
    whole, paths.daemon = paths.daemon, lambda: script
    try:
        return stage.other_daemon(address=f'10.77.0.1:{valkey.port}',
                                  config={'fabric.interfaces': interfaces, 'valkey.connections': 4})
    finally:
        paths.daemon = whole


def nics(daemon):
    with Session(daemon.admin_path, hello=False) as operator:
        return {nic['nic']: nic for nic in operator.call('status')['fabric']['nics']}


def sent_bytes():
    """By the server's side of each link."""
    found = subprocess.run([paths.program('ip'), '-s', '-j', 'link'], check=True, capture_output=True).stdout
    return {link['ifname']: link['stats64']['tx']['bytes'] for link in json.loads(found)}


def get_many(stage, session, count=8):
    region = session.register(stage.memory(count * SIZE, fill=0))
    for number in [session.start_get(region, n * SIZE, SIZE, 'value') for n in range(count)]:
        expect.equal(session.wait(number)['length'], SIZE, 'length')


def test_both(stage):
    """Lanes are spread over both interfaces, and both carry bytes"""
    inside = two_namespaces()
    valkey = server(stage, 'a0,a1')
    valkey.store('value', b'v' * SIZE)
    daemon = daemon_inside(stage, inside, valkey, 'b0, b1')
    session = stage.session(daemon)
    get_many(stage, session)
    # Before that, lanes that were made first could have carried all.
    wait.until(lambda: [nics(daemon)[name]['lanes'] for name in ('b0', 'b1')] == [2, 2],
               lambda: f'lanes: {nics(daemon)}')
    before = sent_bytes()
    get_many(stage, session, 16)
    found = nics(daemon)
    expect.equal([found[name]['lanes'] for name in ('b0', 'b1')], [2, 2], 'lanes')
    expect.equal([found[name]['state'] for name in ('b0', 'b1')], ['usable', 'usable'], 'states')
    after = sent_bytes()
    for link in 'a0', 'a1':
        expect.holds(after[link] - before[link] >= SIZE, f'{link} carried {after[link] - before[link]} bytes')


def test_one_fails(stage):
    """An interface without an address is reported and left out; once it has one it is used"""
    inside = two_namespaces()
    valkey = server(stage, 'a0')
    valkey.store('value', b'v' * SIZE)
    ip('address', 'flush', 'dev', 'b1', inside=inside)
    daemon = daemon_inside(stage, inside, valkey, 'b0,b1')
    session = stage.session(daemon)
    get_many(stage, session)
    wait.until(lambda: nics(daemon)['b0']['lanes'] == 4, lambda: f'lanes: {nics(daemon)}')
    found = nics(daemon)
    expect.equal((found['b0']['lanes'], found['b1']['lanes']), (4, 0), 'lanes')
    expect.equal(found['b1']['state'], 'left_out', 'state')
    expect.holds('no such interface' in found['b1']['why'], found['b1']['why'])
    told = [line for line in daemon.process.log().splitlines() if 'NIC b1 is left out' in line and 'level=warn' in line]
    expect.equal(len(told), 1, 'lines of the log')
    ip('address', 'add', '10.77.1.2/24', 'dev', 'b1', inside=inside)

    def used():
        valkey.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
        get_many(stage, session, 4)
        return nics(daemon)['b1']['lanes'] > 0

    wait.until(used, 'b1 is tried again')
    expect.equal(nics(daemon)['b1'], {'nic': 'b1', 'lanes': nics(daemon)['b1']['lanes'], 'state': 'usable', 'why': ''},
                 'status')


try:
    tap.run(globals(), Stage())
finally:
    for process in HELD:
        process.kill()
