"""A gate in the queue of a stream: what comes after it waits until the test opens it, however busy the machine is."""

import ctypes
import os
import threading

import ditorch

RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Gate:
    """Holds the queue of a stream until it is opened, or long enough that a call which waits for it is seen."""

    def __init__(self, stream):
        self._open = threading.Event()
        self._run = RUN(lambda _: self._open.wait(60))
        native = ctypes.CDLL(os.path.join(os.path.dirname(ditorch.__file__), "lib", "libdit_vendor_host.so"))
        handle = ctypes.c_void_p(getattr(stream, "dipu_stream", None) or stream.cuda_stream)
        assert native.dit_host_stream_enqueue(handle, self._run, None, ctypes.c_size_t(0), None) == 0

    def open(self):
        self._open.set()
