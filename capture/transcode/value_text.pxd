# cython: language_level=3
"""Column values as Postgres prints them, to C values: the plain form only, never past `size`.

Each function says 0 where the text is anything else; the reference conversion then decides what it is.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *text, char **end, PyObject *overflow) except? -1.0


cdef enum:
    _LONGEST_FLOAT = 63
    _DIGITS_OF_A_LONG = 19
    _DIGITS_OF_A_YEAR = 5   # with more, microseconds may pass 64 bits


cdef inline bint is_digit(unsigned char c) noexcept nogil:
    return 48 <= c <= 57


cdef inline int two_digits(const unsigned char *text) noexcept nogil:
    """The number, or -1."""
    if not is_digit(text[0]) or not is_digit(text[1]):
        return -1
    return (text[0] - 48) * 10 + (text[1] - 48)


cdef inline bint read_integer(const unsigned char *text, Py_ssize_t size, int64_t *value) noexcept nogil:
    cdef bint negative = size > 0 and text[0] == 45
    cdef Py_ssize_t i = 1 if negative else 0
    cdef uint64_t magnitude = 0
    if size == i or size - i > _DIGITS_OF_A_LONG:
        return 0
    while i < size:
        if not is_digit(text[i]):
            return 0
        magnitude = magnitude * 10 + (text[i] - 48)
        i += 1
    if magnitude > 0x7FFFFFFFFFFFFFFFULL:
        return 0
    value[0] = -<int64_t> magnitude if negative else <int64_t> magnitude
    return 1


cdef inline int read_double(const unsigned char *text, Py_ssize_t size, double *value) except -1:
    """What float() gives: it calls the same function of the interpreter."""
    cdef char buffer[_LONGEST_FLOAT + 1]
    cdef char *end
    if size == 0 or size > _LONGEST_FLOAT:
        return 0
    memcpy(buffer, text, size)
    buffer[size] = 0
    try:
        value[0] = PyOS_string_to_double(buffer, &end, NULL)
    except ValueError:
        return 0
    return end == buffer + size


cdef inline bint is_utf8(const unsigned char *text, Py_ssize_t size) noexcept nogil:
    """As strict as Python: no overlong forms, no surrogates, nothing above U+10FFFF."""
    cdef Py_ssize_t i = 0
    cdef uint64_t word
    cdef unsigned char c, second
    while i < size:
        while size - i >= 8:
            memcpy(&word, text + i, 8)
            if word & 0x8080808080808080ULL:
                break
            i += 8
        if i >= size:
            return 1
        c = text[i]
        if c < 0x80:
            i += 1
            continue
        if c < 0xC2 or c > 0xF4 or size - i < 2:
            return 0
        second = text[i + 1]
        if second & 0xC0 != 0x80:
            return 0
        if c < 0xE0:
            i += 2
        elif c < 0xF0:
            if size - i < 3 or text[i + 2] & 0xC0 != 0x80:
                return 0
            if (c == 0xE0 and second < 0xA0) or (c == 0xED and second > 0x9F):
                return 0
            i += 3
        else:
            if size - i < 4 or text[i + 2] & 0xC0 != 0x80 or text[i + 3] & 0xC0 != 0x80:
                return 0
            if (c == 0xF0 and second < 0x90) or (c == 0xF4 and second > 0x8F):
                return 0
            i += 4
    return 1


cdef inline int hex_digit(unsigned char c) noexcept nogil:
    if 48 <= c <= 57:
        return c - 48
    c |= 0x20
    if 97 <= c <= 102:
        return c - 87
    return -1


cdef inline int64_t floor_divide(int64_t value, int64_t by) noexcept nogil:
    cdef int64_t quotient = value // by
    return quotient - 1 if quotient * by > value else quotient


cdef inline int64_t days_from_1970(int64_t year, int month, int day) noexcept nogil:
    cdef int64_t shifted = year - (1 if month <= 2 else 0)
    cdef int64_t era = floor_divide(shifted, 400)
    cdef int64_t of_era = shifted - era * 400
    cdef int64_t of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


cdef inline bint read_bc(const unsigned char *text, Py_ssize_t size, bint *bc) noexcept nogil:
    """What may follow a date or a timestamp: nothing, or ` BC`."""
    bc[0] = size == 3 and memcmp(text, b" BC", 3) == 0
    return size == 0 or bc[0]


cdef inline Py_ssize_t read_ymd(
    const unsigned char *text, Py_ssize_t size, int64_t *year, int *month, int *day
) noexcept nogil:
    """The length of the date that `text` begins with, or 0."""
    cdef Py_ssize_t i = 0
    year[0] = 0
    while i < size and i <= _DIGITS_OF_A_YEAR and is_digit(text[i]):
        year[0] = year[0] * 10 + (text[i] - 48)
        i += 1
    if i < 4 or i > _DIGITS_OF_A_YEAR or size - i < 6 or text[i] != 45 or text[i + 3] != 45:
        return 0
    month[0] = two_digits(text + i + 1)
    day[0] = two_digits(text + i + 4)
    return 0 if month[0] < 0 or day[0] < 0 else i + 6


cdef inline Py_ssize_t read_hms(const unsigned char *text, Py_ssize_t size, int64_t *microseconds) noexcept nogil:
    """The length of the time of day that `text` begins with, or 0."""
    cdef int hour, minute, second
    cdef int64_t fraction = 0, scale = 1000000
    cdef Py_ssize_t i = 8
    if size < 8 or text[2] != 58 or text[5] != 58:
        return 0
    hour, minute, second = two_digits(text), two_digits(text + 3), two_digits(text + 6)
    if hour < 0 or minute < 0 or second < 0:
        return 0
    if size > 8 and text[8] == 46:
        i = 9
        while i < size and i < 15 and is_digit(text[i]):
            fraction = fraction * 10 + (text[i] - 48)
            scale //= 10
            i += 1
        if i == 9:
            return 0
    microseconds[0] = (<int64_t> hour * 3600 + minute * 60 + second) * 1000000 + fraction * scale
    return i


cdef inline bint read_date(const unsigned char *text, Py_ssize_t size, int64_t *value) noexcept nogil:
    cdef int64_t year
    cdef int month, day
    cdef bint bc
    cdef Py_ssize_t end = read_ymd(text, size, &year, &month, &day)
    if end == 0 or not read_bc(text + end, size - end, &bc):
        return 0
    value[0] = days_from_1970(1 - year if bc else year, month, day)
    return 1


cdef inline bint read_time(const unsigned char *text, Py_ssize_t size, int64_t *value) noexcept nogil:
    return size > 0 and read_hms(text, size, value) == size


cdef inline bint read_timestamp(const unsigned char *text, Py_ssize_t size, int64_t *value) noexcept nogil:
    cdef int64_t year, of_day, east = 0
    cdef int month, day, part
    cdef int seconds = 3600
    cdef bint bc
    cdef unsigned char sign
    cdef Py_ssize_t i, length
    if size == 8 and memcmp(text, b"infinity", 8) == 0:
        value[0] = 0x7FFFFFFFFFFFFFFFLL
        return 1
    i = read_ymd(text, size, &year, &month, &day)
    if i == 0 or i >= size or text[i] != 32:
        return 0
    i += 1
    length = read_hms(text + i, size - i, &of_day)
    if length == 0:
        return 0
    i += length
    if i < size and (text[i] == 43 or text[i] == 45):
        sign = text[i]
        while True:  # hours, then minutes and seconds, each behind a colon
            if size - i < 3:
                return 0
            part = two_digits(text + i + 1)
            if part < 0:
                return 0
            east += <int64_t> part * seconds * 1000000
            seconds //= 60
            i += 3
            if seconds == 0 or i >= size or text[i] != 58:
                break
        if sign == 45:
            east = -east
    if not read_bc(text + i, size - i, &bc):
        return 0
    value[0] = days_from_1970(1 - year if bc else year, month, day) * 86400000000LL + of_day - east
    return value[0] >= -210866803200000000LL  # where Postgres begins


cdef inline Py_ssize_t unescape(const unsigned char *text, Py_ssize_t size, unsigned char *out) noexcept nogil:
    """Writes the bytes that a field stands for, which are never more; gives their number. No backslash is the last."""
    cdef Py_ssize_t i = 0, length = 0
    cdef int value, digits, digit
    cdef unsigned char c
    while i < size:
        c = text[i]
        i += 1
        if c == c'\\' and i < size:
            c = text[i]
            i += 1
            if c'0' <= c <= c'7':
                value, digits = c - c'0', 1
                while digits < 3 and i < size and c'0' <= text[i] <= c'7':
                    value = value * 8 + (text[i] - c'0')
                    digits += 1
                    i += 1
                c = <unsigned char> (value & 0xFF)
            elif c == c'x' and i < size and hex_digit(text[i]) >= 0:
                value, digits = 0, 0
                while digits < 2 and i < size:
                    digit = hex_digit(text[i])
                    if digit < 0:
                        break
                    value = value * 16 + digit
                    digits += 1
                    i += 1
                c = <unsigned char> value
            elif c == c'b':
                c = 8
            elif c == c'f':
                c = 12
            elif c == c'n':
                c = 10
            elif c == c'r':
                c = 13
            elif c == c't':
                c = 9
            elif c == c'v':
                c = 11
        out[length] = c
        length += 1
    return length
