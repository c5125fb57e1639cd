# cython: language_level=3, cdivision=True
"""Avro's binary encoding into a buffer that grows. Every write makes sure of its room first."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from capture.transcode.value_text cimport hex_digit

cdef enum:
    FIRST_CAPACITY = 4096
    LARGEST_KEPT = 1 << 20
    LONGEST_LONG = 10


cdef struct Buffer:
    unsigned char *data
    Py_ssize_t size
    Py_ssize_t capacity


cdef inline int _grow(Buffer *out, Py_ssize_t more) except -1:
    cdef Py_ssize_t capacity = max(out.capacity * 2, out.size + more, <Py_ssize_t> FIRST_CAPACITY)
    cdef void *data = PyMem_Realloc(out.data, capacity)
    if data == NULL:
        raise MemoryError
    out.data = <unsigned char *> data
    out.capacity = capacity
    return 0


cdef inline int reserve(Buffer *out, Py_ssize_t more) except -1:
    if out.capacity - out.size < more:
        _grow(out, more)
    return 0


cdef inline int put_byte(Buffer *out, unsigned char byte) except -1:
    reserve(out, 1)
    out.data[out.size] = byte
    out.size += 1
    return 0


cdef inline Py_ssize_t long_at(unsigned char *at, int64_t value) noexcept:
    """Writes it where there is room for LONGEST_LONG; the number of its bytes."""
    cdef uint64_t zigzag = (<uint64_t> value << 1) ^ (~<uint64_t> 0 if value < 0 else <uint64_t> 0)
    cdef Py_ssize_t size = 0
    while zigzag > 0x7F:
        at[size] = <unsigned char> (zigzag & 0x7F) | 0x80
        size += 1
        zigzag >>= 7
    at[size] = <unsigned char> zigzag
    return size + 1


cdef inline int put_long(Buffer *out, int64_t value) except -1:
    reserve(out, LONGEST_LONG)
    out.size += long_at(out.data + out.size, value)
    return 0


cdef inline int put_some_long(Buffer *out, int64_t value) except -1:
    """The second branch of `["null", "long"]`."""
    reserve(out, 1 + LONGEST_LONG)
    out.data[out.size] = 2
    out.size += 1 + long_at(out.data + out.size + 1, value)
    return 0


cdef inline int put_some_raw(Buffer *out, const void *data, Py_ssize_t size) except -1:
    """The second branch of `["null", "string"]` or `["null", "bytes"]`."""
    cdef unsigned char *at
    reserve(out, 1 + LONGEST_LONG + size)
    at = out.data + out.size
    at[0] = 2
    at += 1 + long_at(at + 1, size)
    memcpy(at, data, size)
    out.size = at + size - out.data
    return 0


cdef inline int put_raw(Buffer *out, const void *data, Py_ssize_t size) except -1:
    reserve(out, size)
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef inline int put_bytes(Buffer *out, bytes data) except -1:
    return put_raw(out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef inline int put_little_endian(Buffer *out, uint64_t bits, int count) except -1:
    cdef int i
    reserve(out, count)
    for i in range(count):
        out.data[out.size + i] = <unsigned char> (bits >> (8 * i)) & 0xFF
    out.size += count
    return 0


cdef inline int put_float(Buffer *out, double value) except -1:
    cdef float narrow = <float> value
    cdef uint32_t bits
    memcpy(&bits, &narrow, 4)
    put_byte(out, 2)
    return put_little_endian(out, bits, 4)


cdef inline int put_double(Buffer *out, double value) except -1:
    cdef uint64_t bits
    memcpy(&bits, &value, 8)
    put_byte(out, 2)
    return put_little_endian(out, bits, 8)


cdef inline int put_hex(Buffer *out, const unsigned char *text, Py_ssize_t size) except -1:
    r"""Bytes printed as `\x` and pairs of digits: 1, or 0 and nothing written if the text is anything else."""
    cdef Py_ssize_t start = out.size, i
    cdef int high, low
    if size < 2 or size & 1 or text[0] != c'\\' or text[1] != c'x':
        return 0
    put_byte(out, 2)
    put_long(out, (size - 2) // 2)
    reserve(out, (size - 2) // 2)
    for i in range(2, size, 2):
        high, low = hex_digit(text[i]), hex_digit(text[i + 1])
        if high < 0 or low < 0:
            out.size = start
            return 0
        out.data[out.size] = <unsigned char> (high << 4 | low)
        out.size += 1
    return 1


cdef inline void give_back(Buffer *out) noexcept:
    """Frees a buffer that one large row made larger than what is worth keeping."""
    if out.capacity > LARGEST_KEPT:
        PyMem_Free(out.data)
        out.data = NULL
        out.size = out.capacity = 0
