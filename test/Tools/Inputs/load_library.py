"""Loads a library made of scaled_dot.o while the process runs, and fails in it from two threads.

    load_library.py LIBRARY

Each thread has its own last error, though its storage is of a library that was not there when the threads began.
"""

import ctypes
import sys
import threading

errors = {}
loaded = threading.Event()


def fail(name, missing):
    loaded.wait()
    arguments = [None if index == missing else ctypes.byref(scalar) for index in range(6)]
    code = library.scaled_dot(*arguments)
    errors[name] = f"{code}: {library.attn_last_error().decode()}"


# A DLTensor of zeros: 48 bytes. On device 0 of type 0, so that it is rejected as well.
scalar = (ctypes.c_char * 48)()
threads = [threading.Thread(target=fail, args=("first", 0)), threading.Thread(target=fail, args=("second", 1))]
for thread in threads:
    thread.start()
library = ctypes.CDLL(sys.argv[1])
library.attn_last_error.restype = ctypes.c_char_p
loaded.set()
for thread in threads:
    thread.join()
print(errors["first"], errors["second"], repr(library.attn_last_error().decode()), sep="\n")
