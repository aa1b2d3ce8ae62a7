"""libglide-rdmad-client through ctypes: what the tests need of it."""
import ctypes
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, \
    c_void_p

from lib import paths

WHOLE = 2**64 - 1
CHECKSUM_NONE, CHECKSUM_COMPUTE, CHECKSUM_KNOWN = 0, 1, 2
ACCESS_READ_WRITE, ACCESS_READ = 0, 1
NO_POPULATE, POPULATE, MAP, DAEMON_POPULATES = 1, 2, 4, 8
PATH_RDMA = 1
NO_RECONNECT = 1


class _Error(Structure):
    _fields_ = [('code', c_int), ('name', c_char * 32), ('message', c_char * 512), ('may_have_run', c_bool),
                ('memory_kept', c_bool),
                ('os_errno', c_int), ('need', c_uint64), ('budget', c_char * 32), ('used', c_uint64),
                ('limit', c_uint64), ('asked', c_uint64), ('reserved', c_uint64 * 8)]


class _ConnectOptions(Structure):
    _fields_ = [('struct_size', c_size_t), ('socket_path', c_char_p), ('name', c_char_p), ('timeout_ms', c_uint64),
                ('flags', c_uint), ('reconnect_ms', c_uint64)]


class _ClientInfo(Structure):
    _fields_ = [('struct_size', c_size_t), ('protocol', c_uint64), ('server', c_char_p), ('usable', c_bool),
                ('draining', c_bool), ('why', c_char_p), ('provider', c_char_p), ('message_bytes_max', c_uint64),
                ('regions_max', c_uint64), ('requests_max', c_uint64), ('in_flight_max', c_uint64),
                ('region_bytes_max', c_uint64), ('value_bytes_max', c_uint64)]


class _RegionOptions(Structure):
    _fields_ = [('struct_size', c_size_t), ('access', c_int), ('flags', c_uint), ('populate_threads', c_uint),
                ('label', c_char_p)]


class _Window(Structure):
    _fields_ = [('region', c_void_p), ('offset', c_uint64), ('length', c_uint64)]


class _SetOptions(Structure):
    _fields_ = [('struct_size', c_size_t), ('checksum', c_int), ('crc32c', c_uint32), ('deadline_ms', c_uint64),
                ('ttl_ms', c_uint64)]


class _GetOptions(Structure):
    _fields_ = [('struct_size', c_size_t), ('no_verify', c_bool), ('no_retry', c_bool),
                ('deadline_ms', c_uint64)]


class Receipt(Structure):
    _fields_ = [('found', c_bool), ('has_crc32c', c_bool), ('verified', c_bool), ('crc32c', c_uint32),
                ('path', c_int), ('ttl', c_int), ('length', c_uint64), ('reserved', c_uint64 * 4)]


class _Key(Structure):
    _fields_ = [('data', c_char_p), ('length', c_size_t)]


class KeyResult(Structure):
    _fields_ = [('code', c_int), ('found', c_bool), ('has_crc32c', c_bool), ('crc32c', c_uint32),
                ('length', c_uint64), ('reserved', c_uint64 * 2)]


class GrdError(Exception):
    """name: the error's name, such as 'lost'; details: every field of struct grd_error."""

    def __init__(self, error):
        self.details = error
        self.code = error.code
        self.name = error.name.decode()
        self.need = error.need
        self.may_have_run = error.may_have_run
        super().__init__(f'{self.name} ({self.code}): {error.message.decode("utf-8", "replace")}')


_library = None


def library():
    global _library
    if _library is None:
        _library = ctypes.CDLL(paths.client_library(), use_errno=True)
        _declare(_library)
    return _library


def _declare(lib):
    error = POINTER(_Error)
    prototypes = {
        'grd_connect': (POINTER(_ConnectOptions), POINTER(c_void_p), error),
        'grd_client_info': (c_void_p, POINTER(_ClientInfo), error),
        'grd_region_create': (c_void_p, c_uint64, POINTER(_RegionOptions), POINTER(c_void_p), error),
        'grd_region_register': (c_void_p, c_int, c_uint64, c_uint64, POINTER(_RegionOptions), POINTER(c_void_p),
                                error),
        'grd_region_close': (c_void_p, POINTER(c_bool), error),
        'grd_region_window': (c_void_p, c_uint64, c_uint64, POINTER(_Window), error),
        'grd_region_fd': (c_void_p,),
        'grd_set': (c_char_p, c_size_t, _Window, POINTER(_SetOptions), POINTER(Receipt), error),
        'grd_get': (c_char_p, c_size_t, _Window, POINTER(_GetOptions), POINTER(Receipt), error),
        'grd_exists': (c_void_p, POINTER(_Key), c_size_t, POINTER(KeyResult), error),
        'grd_delete': (c_void_p, POINTER(_Key), c_size_t, POINTER(KeyResult), error),
        'grd_info': (c_void_p, POINTER(_Key), c_size_t, POINTER(KeyResult), error),
    }
    for name, arguments in prototypes.items():
        function = getattr(lib, name)
        function.argtypes = arguments
        function.restype = c_int
    lib.grd_close.argtypes = (c_void_p,)
    lib.grd_close.restype = None
    lib.grd_region_data.argtypes = (c_void_p,)
    lib.grd_region_data.restype = c_void_p
    lib.grd_region_size.argtypes = (c_void_p,)
    lib.grd_region_size.restype = c_uint64
    lib.grd_checksum.argtypes = (c_void_p, c_size_t)
    lib.grd_checksum.restype = c_uint32
    lib.grd_version.restype = c_char_p
    lib.grd_strerror.argtypes = (c_int,)
    lib.grd_strerror.restype = c_char_p


def _sized(structure, **fields):
    return structure(struct_size=ctypes.sizeof(structure), **fields)


def _checked(function, *arguments):
    error = _Error()
    code = function(*arguments, byref(error))
    assert code == error.code, f'{function.__name__} returned {code} but error->code is {error.code}'
    if code != 0:
        raise GrdError(error)


def checksum(data):
    return library().grd_checksum(bytes(data), len(data))


def checksum_at(address, length):
    return library().grd_checksum(address, length)


class Client:
    """reconnect: whether it gets over the daemon's end."""

    def __init__(self, path, name='integration test', timeout_ms=0, reconnect=True, reconnect_ms=0):
        self.handle = c_void_p()
        options = _sized(_ConnectOptions, socket_path=path.encode(), name=name.encode(), timeout_ms=timeout_ms,
                         flags=0 if reconnect else NO_RECONNECT, reconnect_ms=reconnect_ms)
        _checked(library().grd_connect, byref(options), byref(self.handle))

    def close(self):
        handle, self.handle = self.handle, c_void_p()
        library().grd_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def info(self):
        result = _sized(_ClientInfo)
        _checked(library().grd_client_info, self.handle, byref(result))
        return result

    def create(self, size, flags=0, access=ACCESS_READ_WRITE):
        handle = c_void_p()
        _checked(library().grd_region_create, self.handle, size,
                 byref(_sized(_RegionOptions, access=access, flags=flags)), byref(handle))
        return Region(self, handle)

    def register(self, fd, offset=0, size=0, flags=0, access=ACCESS_READ_WRITE):
        handle = c_void_p()
        _checked(library().grd_region_register, self.handle, fd, offset, size,
                 byref(_sized(_RegionOptions, access=access, flags=flags)), byref(handle))
        return Region(self, handle)

    def _keys(self, function, keys):
        items = (_Key * len(keys))(*[_Key(key, len(key)) for key in keys])
        results = (KeyResult * len(keys))()
        _checked(function, self.handle, items, len(keys), results)
        return list(results)

    def exists(self, *keys):
        return [result.found for result in self._keys(library().grd_exists, keys)]

    def delete(self, *keys):
        return [result.found for result in self._keys(library().grd_delete, keys)]

    def key_info(self, *keys):
        return self._keys(library().grd_info, keys)


class Region:
    def __init__(self, client, handle):
        self.client = client
        self.handle = handle

    @property
    def address(self):
        return library().grd_region_data(self.handle)

    @property
    def size(self):
        return library().grd_region_size(self.handle)

    @property
    def fd(self):
        return library().grd_region_fd(self.handle)

    def write(self, offset, data):
        ctypes.memmove(self.address + offset, data, len(data))

    def read(self, offset, length):
        return ctypes.string_at(self.address + offset, length)

    def window(self, offset, length):
        window = _Window()
        _checked(library().grd_region_window, self.handle, offset, length, byref(window))
        return window

    def set(self, key, offset=0, length=WHOLE, checksum=CHECKSUM_NONE, crc32c=0, deadline_ms=0):
        receipt = Receipt()
        _checked(library().grd_set, key, len(key), self.window(offset, length),
                 byref(_sized(_SetOptions, checksum=checksum, crc32c=crc32c, deadline_ms=deadline_ms)),
                 byref(receipt))
        return receipt

    def get(self, key, offset=0, length=WHOLE, no_verify=False, deadline_ms=0, no_retry=False):
        receipt = Receipt()
        _checked(library().grd_get, key, len(key), self.window(offset, length),
                 byref(_sized(_GetOptions, no_verify=no_verify, no_retry=no_retry, deadline_ms=deadline_ms)),
                 byref(receipt))
        return receipt

    def close(self):
        released = c_bool()
        _checked(library().grd_region_close, self.handle, byref(released))
        return released.value
