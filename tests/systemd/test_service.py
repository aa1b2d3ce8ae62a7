#!/usr/bin/env python3
"""The service as an operator has it: installed, started, activated by a client, restarted, stopped, with other sockets.

How it is run: host.py
"""
import json
import os
import re
import shutil
import sys
import time

import host
from host import ADMIN_PATH, CLIENT_PATH, SERVICE, SOCKETS, SYSTEM, UNITS

BATCH_PATH = '/run/glide-rdmad/batch/glide-rdmad.sock'

# Inside: one request of the admin socket's; prints the answer.
ASK = """
import socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
    s.settimeout(10)
    s.connect(sys.argv[1])
    s.send(b'{"jsonrpc": "2.0", "id": 1, "method": "transfers"}')
    print(s.recv(65536).decode())
"""


class Service(host.Host):

    def test_install(self):
        """meson install, systemd-sysusers, configuration"""
        self.install()

    def test_user(self):
        """the service user cannot log in and has its own group"""
        account = self.box.must('getent', 'passwd', 'glide-rdmad').split(':')
        assert account[6].endswith('nologin'), account
        assert self.box.must('id', '--group', '--name', 'glide-rdmad') == 'glide-rdmad'

    def test_start(self):
        """systemctl start: active and ready, with a status"""
        self.box.must('systemctl', 'start', 'glide-rdmad')
        self.expect(SERVICE, ActiveState='active', SubState='running', Result='success')
        assert self.property('StatusText') != '', 'no STATUS= was sent'
        for unit in SOCKETS:
            self.expect(unit, ActiveState='active', SubState='running')

    def test_files(self):
        """socket files: 0660 for the group, 0600"""
        found = [re.sub(r' \d+$', '', line) for line in self.files().splitlines()]
        assert found == [f'{CLIENT_PATH} socket 660 glide-rdmad glide-rdmad',
                         f'{ADMIN_PATH} socket 600 glide-rdmad glide-rdmad'], found

    def test_member(self):
        """an unprivileged member of the group moves a value"""
        self.move_value()

    def test_mounted_directory(self):
        """so does one in a container, with the directory of the socket mounted read-only somewhere else"""
        mounted = 'mount --bind /run/glide-rdmad /mnt && mount -o remount,bind,ro /mnt && exec "$@"'
        said = self.box.must('unshare', '--mount', 'sh', '-c', mounted, 'sh', *self.as_user(
            'member', self.demo, '--socket', '/mnt/glide-rdmad.sock', '--size', '4096'))
        assert 'all bytes and checksums agree' in said, said

    def test_outsider(self):
        """others are refused: no permission"""
        assert self.box.must(*self.connect('outsider', CLIENT_PATH)) == '0 PermissionError'
        assert self.box.must(*self.connect('member', ADMIN_PATH)) == '0 PermissionError'
        refused = self.box.run(*self.as_user('outsider', self.demo, '--socket', CLIENT_PATH, '--size', '4096'))
        assert refused.returncode != 0 and 'no_access' in refused.stdout, refused.stdout

    def test_admin(self):
        """root reaches the admin socket, and it is the admin socket"""
        answer = json.loads(self.box.must('python3', '-c', ASK, ADMIN_PATH))
        assert answer.get('result') == {'transfers': []}, answer
        answer = json.loads(self.box.must(*self.as_user('member', 'python3', '-c', ASK, CLIENT_PATH)))
        assert 'error' in answer, answer

    def test_stop(self):
        """systemctl stop: exit status 0, in time; the sockets stay"""
        files, begin = self.files(), time.monotonic()
        stopped = self.box.run('systemctl', 'stop', 'glide-rdmad')
        seconds = time.monotonic() - begin
        assert stopped.returncode == 0, stopped.stdout
        self.expect(SERVICE, ActiveState='inactive', Result='success', ExecMainStatus='0', ExecMainCode='1')
        assert seconds < 12, f'took {seconds:.1f} s' # drain_ms is 10 s, and nothing was in flight
        assert self.files() == files, self.files()

    def test_activation(self):
        """socket activation: a client's connect starts the service"""
        self.expect(SERVICE, ActiveState='inactive')
        self.move_value()
        self.expect(SERVICE, ActiveState='active', SubState='running')

    def test_restart(self):
        """systemctl restart: same files, no client refused, works again"""
        files, pid = self.files(), self.daemon_pid()
        self.box.must('touch', '/tmp/connect')
        clients = self.box.start(*self.connect('member', CLIENT_PATH, '/tmp/connect'))
        assert clients.stdout.readline() == 'begun\n' # clients are there before, during and after
        self.box.must('systemctl', 'restart', 'glide-rdmad')
        self.box.must('rm', '/tmp/connect')
        said = clients.communicate(timeout=60)[0].split()
        assert self.daemon_pid() not in (0, pid)
        assert len(said) == 1 and int(said[0]) > 1, said
        assert self.files() == files, self.files()
        self.move_value()

    def test_own_sockets(self):
        """without the socket units the daemon makes its sockets itself"""
        self.box.must('systemctl', 'stop', *UNITS)
        self.box.must('systemctl', 'mask', '--runtime', *SOCKETS)
        self.box.must('systemctl', 'start', 'glide-rdmad')
        self.test_files()
        assert self.box.must(*self.connect('outsider', CLIENT_PATH)) == '0 PermissionError'
        self.move_value()

    def test_own_group(self):
        """so with a group of its own in the configuration"""
        self.box.must('groupadd', 'batch')
        self.drop_in('[Service]\nSupplementaryGroups=batch\n')
        self.overlay(f'[socket default]\npath = {CLIENT_PATH}\ngroup = batch\n')
        self.box.must('systemctl', 'restart', 'glide-rdmad')
        assert ' 660 glide-rdmad batch ' in self.files(), self.files()
        self.box.must('systemctl', 'stop', 'glide-rdmad')
        self.expect(SERVICE, ActiveState='inactive', Result='success', ExecMainStatus='0')
        self.box.must('systemctl', 'unmask', '--runtime', *SOCKETS)
        self.overlay('')
        self.drop_in('')
        self.box.must('systemctl', 'start', *SOCKETS)
        self.test_files()

    def test_changed_sockets(self):
        """after a stop of all units and a start, as for socket units that have changed, all is as before"""
        self.box.must('systemctl', 'start', 'glide-rdmad')
        self.box.must('systemctl', 'stop', *SOCKETS, 'glide-rdmad')
        self.expect(SERVICE, ActiveState='inactive')
        self.box.must('systemctl', 'start', *SOCKETS, 'glide-rdmad')
        self.test_files()
        self.move_value()

    def test_second_socket(self):
        """the example of a second socket: its group uses it, as a user of its own, with quotas of its own"""
        self.box.must('systemctl', 'start', 'glide-rdmad')
        examples = os.path.join(self.box.root + self.arguments.prefix, 'share/doc/glide-rdmad/examples')
        shutil.copy(f'{examples}/glide-rdmad-batch.socket', self.box.root + SYSTEM)
        shutil.copy(f'{examples}/batch.conf', os.path.dirname(self.box.root + self.config) + '/conf.d')
        self.drop_in('[Service]\nSockets=glide-rdmad-batch.socket\n')
        said = self.box.must('systemd-analyze', 'verify', '--man=no', 'glide-rdmad-batch.socket')
        assert said == '', said
        self.box.must('systemctl', 'enable', 'glide-rdmad-batch.socket')
        self.box.must('systemctl', 'restart', 'glide-rdmad')
        assert self.box.must('stat', '--format=%F %a %U %G', BATCH_PATH) == 'socket 660 glide-rdmad batch'
        self.box.must('useradd', '--no-create-home', '--groups=batch', 'batcher')
        assert self.box.must(*self.connect('batcher', CLIENT_PATH)) == '0 PermissionError'
        assert self.box.must(*self.connect('member', BATCH_PATH)) == '0 PermissionError'
        self.move_value()
        self.move_value('batcher', BATCH_PATH)
        status = json.loads(self.box.must(*self.as_user('batcher', self.ctl, '--socket', BATCH_PATH, '--json',
                                                        'status')))
        assert status['user']['socket'] == 'batch', status['user']
        assert status['user']['quotas']['pinned_bytes'] == 8 << 30, status['user']


if __name__ == '__main__':
    sys.exit(host.main(Service, __file__))
