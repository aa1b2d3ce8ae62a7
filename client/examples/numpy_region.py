#!/usr/bin/env python3
"""A NumPy array over the memory of a region: computed in place, stored and fetched without a copy.

The library is found as libglide-rdmad-client.so.0, or at $GLIDE_RDMAD_LIBRARY. Exit status 77: NumPy is not there.
"""
import ctypes
import os
import sys
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

try:
    import numpy
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)


class Error(Structure):
    _fields_ = [('code', c_int), ('name', c_char * 32), ('message', c_char * 512), ('may_have_run', c_bool),
                ('os_errno', c_int), ('need', c_uint64), ('budget', c_char * 32), ('used', c_uint64),
                ('limit', c_uint64), ('asked', c_uint64), ('reserved', c_uint64 * 8)]


class Window(Structure):
    _fields_ = [('region', c_void_p), ('offset', c_uint64), ('length', c_uint64)]


class Receipt(Structure):
    _fields_ = [('found', c_bool), ('has_crc32c', c_bool), ('verified', c_bool), ('crc32c', c_uint32),
                ('path', c_int), ('ttl', c_int), ('length', c_uint64), ('reserved', c_uint64 * 4)]


lib = ctypes.CDLL(os.environ.get('GLIDE_RDMAD_LIBRARY', 'libglide-rdmad-client.so.0'))
lib.grd_connect.argtypes = c_void_p, POINTER(c_void_p), POINTER(Error)
lib.grd_close.argtypes = c_void_p,
lib.grd_region_create.argtypes = c_void_p, c_uint64, c_void_p, POINTER(c_void_p), POINTER(Error)
lib.grd_region_close.argtypes = c_void_p, c_void_p, POINTER(Error)
lib.grd_region_data.argtypes = c_void_p,
lib.grd_region_data.restype = c_void_p
lib.grd_set.argtypes = c_char_p, c_size_t, Window, c_void_p, c_void_p, POINTER(Error)
lib.grd_get.argtypes = c_char_p, c_size_t, Window, c_void_p, POINTER(Receipt), POINTER(Error)


def call(function, *arguments):
    error = Error()
    if function(*arguments, byref(error)) != 0:
        raise OSError(f'{error.name.decode()}: {error.message.decode()}')


def region_array(region, size):
    """All bytes of a region as an array that owns nothing: it must not be used after grd_region_close()."""
    memory = (ctypes.c_ubyte * size).from_address(lib.grd_region_data(region))
    return numpy.frombuffer(memory, dtype=numpy.uint8)


def main():
    client, region, receipt = c_void_p(), c_void_p(), Receipt()
    half = 1 << 20
    call(lib.grd_connect, None, byref(client))
    call(lib.grd_region_create, client, 2 * half, None, byref(region))
    array = region_array(region, 2 * half)
    out, back = array[:half].view(numpy.float64), array[half:].view(numpy.float64)
    out[:] = numpy.sqrt(numpy.arange(out.size))
    call(lib.grd_set, b'example:numpy', 13, Window(region, 0, half), None, None)
    call(lib.grd_get, b'example:numpy', 13, Window(region, half, half), None, byref(receipt))
    same = receipt.length == half and bool((out == back).all())
    print(f'{receipt.length} bytes, {"the same" if same else "different"}')
    del array, out, back
    call(lib.grd_region_close, region, None)
    lib.grd_close(client)
    return 0 if same else 1


if __name__ == '__main__':
    sys.exit(main())
