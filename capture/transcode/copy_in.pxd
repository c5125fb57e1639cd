# cython: language_level=3, cdivision=True
"""One row of COPY in text format to fields. What holds escapes is unescaped into a buffer, the rest is pointed at."""

from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcpy

from capture.transcode.avro_out cimport Buffer, reserve
from capture.transcode.pgoutput_in cimport IS_NULL, Field, malformed
from capture.transcode.value_text cimport unescape


cdef extern from * nogil:
    """
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error the first byte of a word must be its lowest
    #endif
    #define first_marked(word) (__builtin_ctzll(word) >> 3)
    """
    Py_ssize_t first_marked(uint64_t word)


cdef inline Py_ssize_t plain_end(const unsigned char *line, Py_ssize_t i, Py_ssize_t end) noexcept nogil:
    """Where the next tab or backslash is; `end`: nowhere. Eight bytes at a time."""
    cdef uint64_t word, tabs, slashes, found
    while end - i >= 8:
        memcpy(&word, line + i, 8)
        tabs, slashes = word ^ 0x0909090909090909ULL, word ^ 0x5C5C5C5C5C5C5C5CULL
        found = ((tabs - 0x0101010101010101ULL) & ~tabs) | ((slashes - 0x0101010101010101ULL) & ~slashes)
        found &= 0x8080808080808080ULL
        if found:
            return i + first_marked(found)
        i += 8
    while i < end and line[i] != c'\t' and line[i] != c'\\':
        i += 1
    return i


cdef inline int read_copy_row(
    const unsigned char *line, Py_ssize_t size, Field *fields, Py_ssize_t columns, Buffer *unescaped
) except -1:
    cdef Py_ssize_t end = size - 1, start = 0, i, count = 0, used = 0
    cdef bint escaped
    cdef Field field
    cdef const void *newline = memchr(line, c'\n', size) if size > 0 else NULL
    if end < 0 or newline == NULL or <const unsigned char *> newline - line != end:
        i = 0 if newline == NULL else <const unsigned char *> newline - line
        raise malformed("A row of COPY must end with its only newline", i)
    if end == 2 and line[0] == c'\\' and line[1] == c'.':
        raise malformed("The end of COPY stands where a row should be", 0)
    if end == 0 and columns == 0:
        return 0
    unescaped.size = 0
    reserve(unescaped, end)
    while True:
        i = start
        escaped = False
        while True:
            i = plain_end(line, i, end)
            if i >= end or line[i] == c'\t':
                break
            if i + 1 >= end:
                raise malformed("A row of COPY ends inside an escape", i)
            escaped = True
            i += 2
        field.data, field.size = line + start, i - start
        if escaped:
            if field.size == 2 and field.data[1] == c'N':
                field.data, field.size = NULL, IS_NULL
            else:
                field.data = unescaped.data + used
                field.size = unescape(line + start, i - start, unescaped.data + used)
                used += field.size
        if count < columns:
            fields[count] = field
        count += 1
        if i >= end:
            break
        start = i + 1
    if count != columns:
        raise malformed(f"A row of COPY has {count} columns instead of {columns}", end)
    return 0
