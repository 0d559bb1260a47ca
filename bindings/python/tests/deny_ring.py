# Installs a seccomp filter that refuses io_uring_setup, as container runtimes do.
import ctypes
import errno
import platform
import struct

NR_IO_URING_SETUP = 425
LOAD_NR = struct.pack("HBBI", 0x20, 0, 0, 0)
IF_SETUP = struct.pack("HBBI", 0x15, 0, 1, NR_IO_URING_SETUP)
REFUSE = struct.pack("HBBI", 0x06, 0, 0, 0x0005_0000 | errno.EPERM)
ALLOW = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF_0000)


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


_filter = LOAD_NR + IF_SETUP + REFUSE + ALLOW
_buffer = ctypes.create_string_buffer(_filter, len(_filter))
_libc = ctypes.CDLL(None, use_errno=True)
_program = Program(4, ctypes.cast(_buffer, ctypes.c_char_p))
if _libc.prctl(38, 1, 0, 0, 0) or _libc.prctl(22, 2, ctypes.byref(_program)):
    raise OSError(ctypes.get_errno(), "seccomp")
