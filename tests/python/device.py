"""Tensors in a device's memory, for tests without an array library.

The memory comes from the CUDA driver that fa2 uses, $FA2_CUDA_LIBRARY: the software device. Tensor speaks
DLPack by __dlpack__, as of before and since 1.0; ExchangeTensor by the table of C functions.
"""

import ctypes
import os
import struct
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8
from ctypes import c_uint16, c_uint32, c_uint64, c_void_p, cast, py_object

CUDA, CPU = 2, 1
DTYPES = {"fp16": (2, 16), "bf16": (4, 16), "fp32": (2, 32), "uint8": (1, 8), "int32": (0, 32),
          "int64": (0, 64), "bool": (6, 8), "int8": (0, 8)}
_WHOLE = {"int32": "<i", "int64": "<q", "bool": "<?", "int8": "<b", "uint8": "<B"}

if "FA2_CUDA_LIBRARY" not in os.environ:
    raise ImportError("FA2_CUDA_LIBRARY does not name the software device")
driver = ctypes.CDLL(os.environ["FA2_CUDA_LIBRARY"])


def check(result):
    if result != 0:
        raise RuntimeError(f"CUDA error {result}")


class Device:
    """Makes the primary context of a device current, and keeps it."""

    def __init__(self, number):
        self.handle, self.context = c_int(), c_void_p()
        check(driver.cuInit(0))
        check(driver.cuDeviceGet(byref(self.handle), number))
        check(driver.cuDevicePrimaryCtxRetain(byref(self.context), self.handle))
        self.enter()

    def enter(self):
        check(driver.cuCtxSetCurrent(self.context) if hasattr(driver, "cuCtxSetCurrent")
              else driver.cuCtxPushCurrent_v2(self.context))


devices = {}


def enter(number):
    devices[number] = devices.get(number) or Device(number)
    devices[number].enter()


# ---- DLPack's structures ----


class DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class Managed(Structure):
    _fields_ = [("tensor", DLTensor), ("manager", c_void_p), ("deleter", c_void_p)]


class ManagedVersioned(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("tensor", DLTensor)]


_lent = {}  # address of a managed structure -> what it keeps alive
_DELETER = CFUNCTYPE(None, c_void_p)
_deleter = _DELETER(lambda address: _lent.pop(address, None) and None)


def lent():
    """How many tensors are lent and not given back."""
    return len(_lent)


_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype, _capsule_new.argtypes = py_object, (c_void_p, c_char_p, c_void_p)


def _row_major(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


class Memory:
    """Bytes on a device, freed with the last tensor that lies in them."""

    def __init__(self, device, size):
        enter(device)
        self.device, self.size, self.address = device, size, c_uint64()
        check(driver.cuMemAlloc_v2(byref(self.address), c_size_t(max(size, 1))))

    def __del__(self):
        enter(self.device)
        driver.cuMemFree_v2(self.address)


class Tensor:
    """dtype "fp16", "bf16" or "fp32"; strides in elements."""

    asked_streams = []  # by __dlpack__, of all tensors
    versioned, read_only, device_type = True, False, CUDA

    def __init__(self, shape, dtype="fp16", device=0, memory=None, strides=None, offset=0):
        self.shape, self.dtype, self.device, self.offset = tuple(shape), dtype, device, offset
        self.strides = tuple(strides or _row_major(shape))
        self.item = DTYPES[dtype][1] // 8
        self.memory = memory or Memory(device, self._span() * self.item)

    def _span(self):
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))

    def permuted(self, *order):
        """A view with its dimensions in another order."""
        return type(self)([self.shape[i] for i in order], self.dtype, self.device, self.memory,
                          [self.strides[i] for i in order], self.offset)

    def selected(self, dimension, index):
        """A view without a dimension."""
        shape, strides = list(self.shape), list(self.strides)
        del shape[dimension], strides[dimension]
        return type(self)(shape, self.dtype, self.device, self.memory, strides,
                          self.offset + index * self.strides[dimension])

    def part(self, dimension, first, last):
        """A view of a range of a dimension."""
        shape = list(self.shape)
        shape[dimension] = last - first
        return type(self)(shape, self.dtype, self.device, self.memory, self.strides,
                          self.offset + first * self.strides[dimension])

    def as_type(self, kind):
        return kind(self.shape, self.dtype, self.device, self.memory, self.strides, self.offset)

    # ---- values: lists of floats in the order of the dimensions ----

    def _places(self):
        places = [self.offset]
        for size, stride in zip(self.shape, self.strides):
            places = [place + i * stride for place in places for i in range(size)]
        return places

    def _read(self):
        enter(self.device)
        raw = ctypes.create_string_buffer(self.memory.size)
        check(driver.cuMemcpyDtoH_v2(raw, self.memory.address, c_size_t(self.memory.size)))
        return raw

    def set(self, values):
        raw = self._read()
        for place, value in zip(self._places(), values):
            raw[place * self.item:(place + 1) * self.item] = encode(value, self.dtype)
        check(driver.cuMemcpyHtoD_v2(self.memory.address, raw, c_size_t(self.memory.size)))
        return self

    def get(self):
        raw = self._read().raw
        return [decode(raw[place * self.item:(place + 1) * self.item], self.dtype) for place in self._places()]

    # ---- DLPack ----

    def fill(self, view):
        """Fill a DLTensor; returns what must live as long as it."""
        shape, strides = (c_int64 * len(self.shape))(*self.shape), (c_int64 * len(self.shape))(*self.strides)
        view.data, view.byte_offset = self.memory.address.value, self.offset * self.item
        view.device_type, view.device_id, view.ndim = self.device_type, self.device, len(self.shape)
        (view.code, view.bits), view.lanes = DTYPES[self.dtype], 1
        view.shape, view.strides = cast(shape, POINTER(c_int64)), cast(strides, POINTER(c_int64))
        return shape, strides, self

    def managed(self, versioned):
        made = ManagedVersioned(major=1, minor=0, flags=int(self.read_only)) if versioned else Managed()
        keep = self.fill(made.tensor)
        made.deleter = cast(_deleter, c_void_p).value
        address = ctypes.addressof(made)
        _lent[address] = (made, keep)
        return address

    def __dlpack_device__(self):
        return self.device_type, self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        Tensor.asked_streams.append(stream)
        versioned = self.versioned and max_version is not None
        return _capsule_new(self.managed(versioned), b"dltensor_versioned" if versioned else b"dltensor", None)


class OnHost(Tensor):
    """One that says that it is not on a device."""

    device_type = CPU


class OldTensor(Tensor):
    """As before DLPack 1.0: without max_version."""

    def __dlpack__(self, *, stream=None):
        Tensor.asked_streams.append(stream)
        return _capsule_new(self.managed(False), b"dltensor", None)


# ---- the exchange table ----

_ALLOCATE = CFUNCTYPE(c_int, POINTER(DLTensor), POINTER(c_void_p), c_void_p, c_void_p)
_FROM_OBJECT = CFUNCTYPE(c_int, py_object, POINTER(c_void_p))
_TO_OBJECT = CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))
_VIEW_OBJECT = CFUNCTYPE(c_int, py_object, POINTER(DLTensor))
_CURRENT_STREAM = CFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))


class Exchange(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("previous", c_void_p), ("allocate", _ALLOCATE),
                ("from_object", _FROM_OBJECT), ("to_object", _TO_OBJECT), ("view_object", _VIEW_OBJECT),
                ("current_stream", _CURRENT_STREAM)]


class ExchangeTensor(Tensor):
    """Lends itself by C functions; has a stream of its own for all tensors."""

    stream = 0
    allocated = 0

    def __dlpack__(self, **unused):
        raise AssertionError("the table was not used")


def _allocate(prototype, ret_tensor, error_context, set_error):
    wanted = prototype.contents
    dtype = next(name for name, code in DTYPES.items() if code == (wanted.code, wanted.bits))
    made = ExchangeTensor([wanted.shape[i] for i in range(wanted.ndim)], dtype, wanted.device_id)
    ExchangeTensor.allocated += 1
    ret_tensor[0] = made.managed(True)
    return 0


def _from_object(tensor, ret_tensor):
    ret_tensor[0] = tensor.managed(True)
    return 0


def _to_object(address, ret_object):
    tensor = _lent.pop(address)[1][2]
    ctypes.pythonapi.Py_IncRef(py_object(tensor))
    ret_object[0] = id(tensor)
    return 0


def _view_object(tensor, view):
    tensor.viewed = tensor.fill(view.contents)
    return 0


def _current_stream(device_type, device_id, ret_stream):
    ret_stream[0] = ExchangeTensor.stream
    return 0


def _table(view_object):
    return Exchange(1, 3, None, _ALLOCATE(_allocate), _FROM_OBJECT(_from_object), _TO_OBJECT(_to_object),
                    view_object, _CURRENT_STREAM(_current_stream))


_exchange, _managed_only = _table(_VIEW_OBJECT(_view_object)), _table(_VIEW_OBJECT())
_newer = Exchange(2, 0, ctypes.addressof(_exchange))


def _capsule(table):
    return _capsule_new(ctypes.addressof(table), b"dlpack_exchange_api", None)


ExchangeTensor.__dlpack_c_exchange_api__ = _capsule(_exchange)


class ManagedTensor(ExchangeTensor):
    """Its table has no function for views."""

    __dlpack_c_exchange_api__ = _capsule(_managed_only)


class NewerTensor(ExchangeTensor):
    """Its table is of a version to come, with this one behind it."""

    __dlpack_c_exchange_api__ = _capsule(_newer)


# ---- numbers ----


def encode(value, dtype):
    if dtype in _WHOLE:
        return struct.pack(_WHOLE[dtype], value)
    if dtype == "fp16":
        return struct.pack("<e", value)
    raw = struct.pack("<f", value)
    return raw if dtype == "fp32" else raw[2:]


def decode(raw, dtype):
    if dtype in _WHOLE:
        return struct.unpack(_WHOLE[dtype], raw)[0]
    if dtype == "fp16":
        return struct.unpack("<e", raw)[0]
    return struct.unpack("<f", raw if dtype == "fp32" else b"\0\0" + raw)[0]


# ---- streams ----


def new_stream(device=0):
    enter(device)
    stream = c_void_p()
    check(driver.cuStreamCreate(byref(stream), 1))
    return stream


def synchronize(device=0):
    enter(device)
    check(driver.cuCtxSynchronize())


def live():
    """Objects and allocations of the software device."""
    driver.fa2_sim_live.restype = c_size_t
    return driver.fa2_sim_live()
