"""Memory that the kernel cannot fill until the test lets it: a userfaultfd.

A read into it blocks in the kernel for as long as the test wants, on any file. So a test can look
at a read that is certainly under way, without a race and without a wait for a time.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import struct

import pytest

PAGE = 4096
_NR_USERFAULTFD = {"x86_64": 323, "aarch64": 282}.get(os.uname().machine)
_UFFDIO_API = 0xC018AA3F
_UFFDIO_REGISTER = 0xC020AA00
_UFFDIO_ZEROPAGE = 0xC020AA04
_REGISTER_MODE_MISSING = 1
_libc = ctypes.CDLL(None, use_errno=True)


class SlowMemory:
    """``pages`` of memory: ``wait`` returns when the kernel writes to it, ``release`` lets it."""

    def __init__(self, pages):
        self.fd = _libc.syscall(_NR_USERFAULTFD, os.O_CLOEXEC) if _NR_USERFAULTFD else -1
        if self.fd < 0:
            pytest.skip(f"WITHOUT userfaultfd ({os.strerror(ctypes.get_errno())}): run as root")
        fcntl.ioctl(self.fd, _UFFDIO_API, struct.pack("QQQ", 0xAA, 0, 0))
        self.map = mmap.mmap(-1, pages * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        anchor = ctypes.c_char.from_buffer(self.map)
        self.range = struct.pack("QQ", ctypes.addressof(anchor), pages * PAGE)
        del anchor
        request = self.range + struct.pack("QQ", _REGISTER_MODE_MISSING, 0)
        fcntl.ioctl(self.fd, _UFFDIO_REGISTER, request)

    def wait(self):
        os.read(self.fd, 32)

    def release(self):
        """Fills the memory with zeros, and lets the kernel continue."""
        if self.fd < 0:
            return
        try:
            fcntl.ioctl(self.fd, _UFFDIO_ZEROPAGE, self.range + struct.pack("Qq", 0, 0))
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        os.close(self.fd)
        self.fd = -1


@pytest.fixture
def slow():
    memory = SlowMemory(4)
    yield memory
    memory.release()
