"""Prints the undefined symbols of objects that the C libraries of this machine do not export.

    undefined_symbols.py OBJECT...

libc, libm, libdl and libpthread are those that gcc links. The dynamic linker is not among them.
"""

import subprocess
import sys

LIBRARIES = ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"]


def symbols(path, *options):
    command = ["llvm-nm", "--format=just-symbols", *options, path]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.partition("@")[0] for line in listing.split()}


def exported(library):
    path = subprocess.run(["gcc", f"-print-file-name={library}"], capture_output=True, text=True, check=True).stdout.strip()
    return symbols(path, "--dynamic", "--defined-only", "--extern-only")


def main(objects):
    allowed = set().union(*map(exported, LIBRARIES))
    assert "malloc" in allowed and "__tls_get_addr" not in allowed
    for path in objects:
        undefined = symbols(path, "--undefined-only")
        assert "malloc" in undefined, f"{path}: {undefined}"
        for symbol in sorted(undefined - allowed):
            print(f"{path}: {symbol}")
        print(f"{path}: {len(undefined)} symbols of libc, libm, libdl and libpthread")


main(sys.argv[1:])
