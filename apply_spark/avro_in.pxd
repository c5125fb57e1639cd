# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Avro's binary encoding, read with its end in sight: nothing is read past it."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum Outcome:
    FINE = 0
    CUT = 1
    BAD_NUMBER = 2
    BAD_LENGTH = 3
    BAD_BRANCH = 4
    BAD_BOOLEAN = 5
    BAD_TEXT = 6
    LEFT_OVER = 7
    TOO_LARGE = 8
    NO_MEMORY = 9

cdef enum:
    MOST_ITEMS = 0x7FFFFFFF


cdef struct Input:
    const uint8_t *at
    const uint8_t *end


cdef inline int read_long(Input *source, int64_t *value) noexcept nogil:
    cdef uint64_t bits = 0
    cdef int shift = 0
    cdef uint8_t byte
    while source.at < source.end:
        byte = source.at[0]
        source.at += 1
        if shift == 63 and byte > 1:
            return BAD_NUMBER
        bits |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t> (bits >> 1) ^ -<int64_t> (bits & 1)
            return FINE
        shift += 7
    return CUT


cdef inline int read_length(Input *source, int64_t *length) noexcept nogil:
    """Of bytes that are there."""
    cdef int outcome = read_long(source, length)
    if outcome == FINE and (length[0] < 0 or length[0] > source.end - source.at):
        return BAD_LENGTH
    return outcome


cdef inline int read_count(Input *source, int64_t *count) noexcept nogil:
    """Of the items in the next block; every item has a byte at least."""
    cdef int64_t size
    cdef int outcome = read_long(source, count)
    if outcome == FINE and count[0] < 0:
        if count[0] < -<int64_t> MOST_ITEMS:
            return BAD_LENGTH
        count[0] = -count[0]
        outcome = read_length(source, &size)
    if outcome == FINE and count[0] > source.end - source.at:
        return BAD_LENGTH
    return outcome


cdef inline bint is_utf8(const uint8_t *text, int64_t size) noexcept nogil:
    cdef int64_t i = 0
    cdef uint64_t eight
    cdef uint8_t first
    cdef uint32_t point
    cdef int more, k
    while i < size:
        if size - i >= 8:
            memcpy(&eight, text + i, 8)
            if not eight & <uint64_t> 0x8080808080808080:
                i += 8
                continue
        first = text[i]
        if first < 0x80:
            i += 1
            continue
        if 0xC2 <= first <= 0xDF:
            more, point = 1, first & 0x1F
        elif 0xE0 <= first <= 0xEF:
            more, point = 2, first & 0x0F
        elif 0xF0 <= first <= 0xF4:
            more, point = 3, first & 0x07
        else:
            return False
        if more >= size - i:
            return False
        for k in range(1, more + 1):
            if text[i + k] & 0xC0 != 0x80:
                return False
            point = point << 6 | text[i + k] & 0x3F
        if more == 2 and (point < 0x800 or 0xD800 <= point <= 0xDFFF):
            return False
        if more == 3 and (point < 0x10000 or point > 0x10FFFF):
            return False
        i += more + 1
    return True
