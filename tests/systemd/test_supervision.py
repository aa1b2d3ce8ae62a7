#!/usr/bin/env python3
"""What systemd does when the daemon fails, and what the daemon does when it is stopped while it is at work.

How it is run: host.py
"""
import json
import sys
import time

import host
from host import CLIENT_PATH, SERVICE, wait

KEY = 'a value'


class Supervision(host.Host):

    def put(self, *options):
        """A client that stores 64 KiB; not waited for."""
        return self.box.start(*self.as_user('member', self.ctl, *options, 'put', KEY, '/opt/value'))

    def in_flight(self):
        transfers = json.loads(self.box.must(self.ctl, '--json', 'transfers'))['transfers']
        return any(transfer['state'] == 'sent' for transfer in transfers)

    # --- tests

    def test_install(self):
        """installed and started"""
        self.install()
        self.write('/opt/value', 'x' * 65536)
        self.box.must('systemctl', 'start', 'glide-rdmad')

    def test_killed(self):
        """a daemon that was killed is started again; the sockets stay as they are"""
        files, pid = self.files(), self.daemon_pid()
        self.box.must('systemctl', 'kill', '--signal=KILL', 'glide-rdmad')
        self.wait_for_other_daemon(pid)
        self.expect(SERVICE, ActiveState='active', SubState='running', NRestarts='1')
        assert self.files() == files, self.files()
        self.move_value()

    def test_watchdog(self):
        """a daemon that hangs is ended by systemd and started again; one that works is not"""
        self.expect(SERVICE, WatchdogUSec='30s', TimeoutAbortUSec='5s')
        self.drop_in('[Service]\nWatchdogSec=6\nTimeoutAbortSec=1\n') # 3 s late on a busy machine is no failure
        self.box.must('systemctl', 'restart', 'glide-rdmad')
        pid = self.daemon_pid()
        time.sleep(8) # more than the watchdog's
        self.expect(SERVICE, ActiveState='active', MainPID=str(pid), NRestarts='0')
        self.box.must('systemctl', 'kill', '--signal=STOP', 'glide-rdmad')
        self.wait_for_other_daemon(pid)
        self.expect(SERVICE, NRestarts='1')
        assert 'watchdog' in self.journal('--grep=Watchdog timeout').lower()
        self.drop_in('')
        self.box.must('systemctl', 'restart', 'glide-rdmad')
        self.move_value()

    def test_status(self):
        """systemctl status tells nodes, regions and registered bytes"""
        # Changes are told three seconds apart: at first it may tell of the value that was just moved.
        host.wait(lambda: self.property('StatusText') == 'ready: 1 of 1 nodes up, 0 regions, 0 bytes registered', 60,
                  'another STATUS=')

    def test_reload(self):
        """systemctl reload: the new configuration holds, in the same process"""
        pid = self.daemon_pid()
        self.overlay('[memory]\npinned_limit = 32M\n')
        self.box.must('systemctl', 'reload', 'glide-rdmad')
        self.expect(SERVICE, ActiveState='active', SubState='running', MainPID=str(pid))
        assert self.status()['memory']['memlock']['limit'] == 32 << 20, self.status()
        self.move_value()

    def test_broken_reload(self):
        """systemctl reload of a configuration with a mistake fails and says why; the daemon goes on with the old one"""
        pid = self.daemon_pid()
        self.overlay('[memory]\npinned_limit = 16M\npinned_limit_ = 16M\n')
        failed = self.box.run('systemctl', 'reload', 'glide-rdmad')
        assert failed.returncode != 0, failed.stdout
        self.expect(SERVICE, ActiveState='active', SubState='running', MainPID=str(pid))
        assert 'test.conf:3: ' in self.journal(), self.journal()
        assert self.status()['memory']['memlock']['limit'] == 32 << 20, self.status()
        self.overlay('')
        self.move_value()

    def test_stop_lets_finish(self):
        """stop with a transfer in flight: it finishes within drain_ms, and its client gets the result"""
        self.valkey('config', 'set', 'largeobj.test-delay-before-reply-ms', '6000')
        client = self.put('--socket', CLIENT_PATH)
        wait(self.in_flight, 60, 'nothing in flight')
        self.box.must('systemctl', 'stop', 'glide-rdmad')
        self.valkey('config', 'set', 'largeobj.test-delay-before-reply-ms', '0')
        said = client.communicate(timeout=60)[0]
        assert client.returncode == 0, said
        self.expect(SERVICE, ActiveState='inactive', Result='success', ExecMainStatus='0')
        assert self.valkey('exists', KEY) == '1'

    def test_stop_takes_back(self):
        """stop with one that does not end: taken back after drain_ms, and the client is told; status 0"""
        self.overlay('[daemon]\ndrain_ms = 300\n')
        self.box.must('systemctl', 'start', 'glide-rdmad')
        self.valkey('config', 'set', 'largeobj.test-never-answer', 'yes')
        client = self.put('--socket', CLIENT_PATH, '--deadline', '100000')
        wait(self.in_flight, 60, 'nothing in flight')
        begin = time.monotonic()
        self.box.must('systemctl', 'stop', 'glide-rdmad')
        seconds = time.monotonic() - begin
        self.valkey('config', 'set', 'largeobj.test-never-answer', 'no')
        self.expect(SERVICE, ActiveState='inactive', Result='success', ExecMainStatus='0')
        assert 0.3 <= seconds < 50, f'took {seconds:.1f} s' # it does not wait for the deadline
        said = client.communicate(timeout=60)[0]
        assert client.returncode != 0 and 'may have' in said, (client.returncode, said)

    def test_left_open(self):
        """status 75, above quarantine_restart_bytes: started again, and says why in the journal"""
        self.drop_in('[Service]\nEnvironment=GLIDE_RDMAD_FABRIC_OBJECT=/opt/fake-fabric.so '
                     'FAKE_FABRIC=mr_close=16\n')
        self.overlay('[fabric]\nprovider = verbs\n[daemon]\ndrain_ms = 300\n'
                     '[memory]\npinned_limit = 0\nquarantine_restart_bytes = 1\n')
        self.box.must('systemctl', 'start', 'glide-rdmad')
        pid = self.daemon_pid()
        self.put('--socket', CLIENT_PATH, '--deadline', '2000').communicate(timeout=60)
        self.wait_for_other_daemon(pid)
        journal = self.journal(f'_PID={pid}', '+', f'UNIT={SERVICE}')
        assert 'quarantine_restart_bytes = 1' in journal, journal
        assert 'status=75' in journal, journal

    def test_bad_configuration(self):
        """bad configuration: status 78, said in the journal, not tried again"""
        self.box.must('systemctl', 'stop', 'glide-rdmad')
        self.drop_in('')
        self.overlay('[limits]\nsesions = 5\n')
        failed = self.box.run('systemctl', 'start', 'glide-rdmad')
        assert failed.returncode != 0
        time.sleep(1.5) # RestartSec is 1 s
        self.expect(SERVICE, ActiveState='failed', ExecMainStatus='78', NRestarts='0')
        journal = self.journal()
        assert 'sesions' in journal, journal

    def test_waiting_clients(self):
        """with bad configuration a client starts it in vain; systemd gives up soon, and closes the socket"""
        self.expect(host.SOCKETS[0], ActiveState='active')
        self.box.run(*self.connect('member', CLIENT_PATH))
        wait(lambda: self.property('Result', host.SOCKETS[0]) == 'service-start-limit-hit', 60, 'the socket is open')
        assert self.box.must(*self.connect('member', CLIENT_PATH)) == '0 ConnectionRefusedError'

    def test_mended(self):
        """once mended it starts, as the manual says"""
        self.overlay('')
        self.box.must('systemctl', 'reset-failed', 'glide-rdmad*')
        self.box.must('systemctl', 'start', *host.SOCKETS, 'glide-rdmad')
        self.move_value()


if __name__ == '__main__':
    sys.exit(host.main(Supervision, __file__))
