# cython: language_level=3, cdivision=True
"""The clock of the machine in nanoseconds since 1970, and division that rounds down as Python's does."""

from libc.stdint cimport int64_t

cdef extern from "<time.h>" nogil:
    ctypedef int clockid_t
    cdef struct timespec:
        long long tv_sec
        long tv_nsec
    clockid_t CLOCK_REALTIME
    int clock_gettime(clockid_t clock, timespec *now)


cdef inline bint read_clock(int64_t *nanoseconds) noexcept nogil:
    cdef timespec now
    if clock_gettime(CLOCK_REALTIME, &now) != 0:
        return False
    nanoseconds[0] = <int64_t> now.tv_sec * 1000000000 + now.tv_nsec
    return True


cdef inline int64_t floor_thousandth(int64_t value) noexcept nogil:
    cdef int64_t quotient = value // 1000
    return quotient - 1 if quotient * 1000 > value else quotient
