#!/usr/bin/env python3
"""The shared library exports exactly what its header declares, under one version, and needs no RDMA library.

Usage: test_client_symbols.py HEADER MAP LIBRARY
"""
import re
import subprocess
import sys

header, version_map, library = sys.argv[1:]
declared = set(re.findall(r'GRD_API [^;(]*?\b(grd_\w+)\(', open(header, encoding='utf-8').read()))
listed = set(re.findall(r'^\s+(grd_\w+);', open(version_map, encoding='utf-8').read(), re.MULTILINE))
lines = subprocess.run(['nm', '-D', '--defined-only', '--with-symbol-versions', library], check=True,
                       capture_output=True, text=True).stdout.splitlines()
exported = {line.split()[-1] for line in lines}
dynamic = subprocess.run(['readelf', '-d', library], check=True, capture_output=True, text=True).stdout
checks = [
    ('the map lists what the header declares', listed == declared),
    ('the library exports just that', exported == {f'{name}@@GLIDE_RDMAD_0' for name in declared} | {'GLIDE_RDMAD_0'}),
    ('its soname is .so.0', '[libglide-rdmad-client.so.0]' in dynamic),
    ('it needs neither libfabric, libuv nor libibverbs', not re.search(r'lib(fabric|uv|ibverbs|rdmacm)\.so', dynamic)),
]
print(f'1..{len(checks)}')
for number, (name, good) in enumerate(checks, 1):
    print(f'{"ok" if good else "not ok"} {number} - {name}')
if not all(good for _, good in checks):
    print(f'# declared {declared}\n# listed {listed}\n# exported {exported}', file=sys.stderr)
    sys.exit(1)
