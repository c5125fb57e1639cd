# cython: language_level=3
"""The tuples of a pgoutput message, as places in its bytes: bounds-checked, with the decoder's words for errors."""

from libc.stdint cimport int64_t
from libc.string cimport memcmp

cdef enum:  # the size of a field without a value
    IS_NULL = -1
    IS_UNCHANGED = -2


cdef struct Field:
    const unsigned char *data
    Py_ssize_t size


cdef struct Input:
    const unsigned char *data
    Py_ssize_t size
    Py_ssize_t offset


cdef inline object malformed(str reason, Py_ssize_t offset):
    from schemas.errors import MalformedMessage  # a pxd has no globals
    return MalformedMessage(reason, offset=offset)


cdef inline object truncated(Input *source):
    return malformed("The message ends early", source.offset)


cdef inline object unknown(Input *source, str what, int tag):
    return malformed(f"No {what} has the tag {tag:#04x}", source.offset - 1)


cdef inline int open_input(Input *source, Py_buffer *view, Py_ssize_t offset) except -1:
    if offset < 0 or offset > view.len:
        raise malformed("The message ends early", 0)
    source.data = <const unsigned char *> view.buf + offset
    source.size = view.len - offset
    source.offset = 0
    return 0


cdef inline int read_byte(Input *source) except -1:
    if source.size - source.offset < 1:
        raise truncated(source)
    source.offset += 1
    return source.data[source.offset - 1]


cdef inline int64_t read_unsigned(Input *source, int count) except -1:
    cdef int64_t value = 0
    cdef int i
    if source.size - source.offset < count:
        raise truncated(source)
    for i in range(count):
        value = value << 8 | source.data[source.offset + i]
    source.offset += count
    return value


cdef inline Py_ssize_t read_tuple(Input *source, Field *fields, Py_ssize_t wanted) except -1:
    """How many columns the tuple has; the first `wanted` of them are put into `fields`."""
    cdef Py_ssize_t count = read_unsigned(source, 2), i
    cdef Field field
    cdef int tag
    for i in range(count):
        tag = read_byte(source)
        field.data = NULL
        if tag == c't':
            field.size = read_unsigned(source, 4)
            if field.size > source.size - source.offset:
                raise truncated(source)
            field.data = source.data + source.offset
            source.offset += field.size
        elif tag == c'n':
            field.size = IS_NULL
        elif tag == c'u':
            field.size = IS_UNCHANGED
        elif tag == c'b':
            raise malformed("A value is binary, which was not asked for", source.offset - 1)
        else:
            raise unknown(source, "value", tag)
        if i < wanted:
            fields[i] = field
    return count


cdef inline int finish(Input *source) except -1:
    cdef Py_ssize_t left = source.size - source.offset
    if left:
        raise malformed(f"The message is complete, but {left} bytes are left over", source.offset)
    return 0


cdef inline bint same(Field *one, Field *other) noexcept nogil:
    return one.size == other.size and (one.size <= 0 or memcmp(one.data, other.data, one.size) == 0)
