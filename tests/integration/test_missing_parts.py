"""Without the module, or without a fabric, keys.* work and transfers say what is missing."""
import re

from lib import expect, paths, tap
from lib.stage import Stage

EX_CONFIG = 78


def check_keys_work(stage, session):
    stage.valkey.call('SET', 'there', 'x')
    expect.equal(session.exists('there', 'absent'), [True, False])
    expect.equal(session.delete('there'), [True])


def test_without_module(stage):
    """A server without the module: keys.* work, the first transfer says that the module is missing"""
    with stage.memory(4096) as memory, stage.session() as session:
        check_keys_work(stage, session)
        region = session.register(memory)
        for start in (session.start_set, session.start_get):
            with expect.error('not_usable') as refused:
                session.wait(start(region, 0, 100, 'key'))
            expect.holds(re.search('module|BLOB', refused.raised.message), refused.raised)
        check_keys_work(stage, session)


def without_fabric(stage, **config):
    return stage.other_daemon(environment={'GLIDE_RDMAD_FABRIC_OBJECT': '/nonexistent'}, **config)


def test_without_fabric(stage):
    """A daemon that cannot load its fabric object: hello says why, keys.* work, transfers are not_usable"""
    daemon = without_fabric(stage)
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        expect.equal(session.hello['usable'], False)
        expect.holds('/nonexistent' in session.hello['why'], session.hello['why'])
        check_keys_work(stage, session)
        with expect.error('not_usable') as refused:
            session.get(session.register(memory), 0, 100, 'key')
        expect.holds('/nonexistent' in refused.raised.message, refused.raised)
    expect.equal(daemon.stop(), 0)


def test_without_provider(stage):
    """A provider that this host does not have: hello names it, and no other is used"""
    daemon = stage.other_daemon(config={'fabric.provider': 'efa-direct'})
    with stage.session(daemon) as session:
        if session.hello['usable']:
            raise tap.Skip('this host has an EFA device')
        expect.holds('efa' in session.hello['why'], session.hello['why'])
        check_keys_work(stage, session)


def test_fabric_required(stage):
    """[fabric] required = yes: the daemon ends with status 78 and says why"""
    daemon = stage.other_daemon(config={'fabric.required': 'yes'}, start=False,
                                environment={'GLIDE_RDMAD_FABRIC_OBJECT': '/nonexistent'})
    daemon.begin()
    expect.equal(daemon.process.wait(), EX_CONFIG, 'exit status')
    expect.holds('/nonexistent' in daemon.process.log(), daemon.process.log())


def test_library_that_is_missing(stage):
    """[fabric] library names a file that is not there: not usable, and the file is named"""
    daemon = stage.other_daemon(config={'fabric.library': '/nonexistent/libfabric.so.1'})
    with stage.session(daemon) as session:
        expect.equal(session.hello['usable'], False)
        expect.holds('/nonexistent/libfabric.so.1' in session.hello['why'], session.hello['why'])


def test_module_without_fabric(stage):
    """A server whose module has no fabric: transfers say so with the server's words"""
    server = stage.other_valkey(module_options={'fabric-interfaces': 'no-such-interface'})
    daemon = stage.other_daemon(server)
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        with expect.error('not_usable', 'server_error') as refused:
            session.set(session.register(memory), 0, 100, 'key')
        expect.holds('RDMA provider unavailable' in refused.raised.message, refused.raised)


def test_module_loaded_later(stage):
    """A module loaded later is found without a restart of the daemon"""
    server = stage.other_valkey(module=False, options={'enable-module-command': 'yes'})
    daemon = stage.other_daemon(server)
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        with expect.error('not_usable'):
            session.set(region, 0, 100, 'key')
        server.call('MODULE', 'LOAD', paths.module())
        session.wait_until_sets_work(region)


tap.run(globals(), Stage(module=False))
