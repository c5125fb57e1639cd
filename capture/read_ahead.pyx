# cython: language_level=3, cdivision=True
"""Takes in what comes over a unix socket while somebody else uses what came before: a ring of bytes and its reader.

The walsender sends each row by itself and stands still when the socket is full, which is after two hundred rows. Who
transcodes cannot read at the same time; this reads in a thread that never takes the interpreter's lock.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import os

cdef extern from * nogil:
    """
    #define load(at) __atomic_load_n((at), __ATOMIC_SEQ_CST)
    #define store(at, value) __atomic_store_n((at), (value), __ATOMIC_SEQ_CST)
    #define exchange(at, value) __atomic_exchange_n((at), (value), __ATOMIC_SEQ_CST)
    """
    size_t load(size_t *at)
    void store(size_t *at, size_t value)
    size_t exchange(size_t *at, size_t value)

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    enum: POLLIN
    int poll(pollfd *wanted, unsigned long count, int milliseconds)

cdef extern from "sys/socket.h" nogil:
    enum: MSG_DONTWAIT
    ssize_t recv(int socket, void *room, size_t size, int flags)

cdef extern from "unistd.h" nogil:
    ssize_t read(int fd, void *room, size_t size)
    ssize_t write(int fd, const void *data, size_t size)
    int usleep(unsigned int microseconds)

cdef enum:
    PIECE = 256 * 1024
    MANY = 64 * 1024  # bytes that are worth to wake somebody for while more come
    LONGEST_NAP = 400  # microseconds in which more may come
    SHORTEST_NAP = 50
    LITTLE = 6 * 1024  # bytes of one look after which the next nap may be longer
    MUCH = 12 * 1024  # after which it must be shorter: 25 KiB of small rows fill the socket
    HELD_BACK = 5000  # microseconds for which bytes are held back at most
    IDLE = 100  # milliseconds between two looks whether it is to stop


cdef unsigned int _fitting(unsigned int nap, ssize_t got) noexcept nogil:
    """The next nap: so long that the walsender, however fast it is, never finds the socket full."""
    if got > MUCH:
        return max(nap // 2, <unsigned int> SHORTEST_NAP)
    if got < LITTLE:
        return min(nap * 2, <unsigned int> LONGEST_NAP)
    return nap


cdef class ReadAhead:
    """`run` is for a thread of its own. All else is for the one thread that uses the bytes."""

    cdef int _socket, _heard, _bell
    cdef unsigned char *_ring
    cdef size_t _room
    # How many bytes were ever put into the ring, and taken out of it.
    cdef size_t _put, _taken
    cdef size_t _waiting, _stopped
    # 0: no; else 1 more than the error of the socket, which is 0 where the server closed the connection.
    cdef size_t _failed

    def __cinit__(self, int socket, size_t room):
        self._heard = self._bell = -1
        self._socket, self._room = socket, room
        self._ring = <unsigned char *> malloc(room)
        if self._ring == NULL:
            raise MemoryError
        self._heard, self._bell = os.pipe()
        os.set_blocking(self._heard, False)

    def __dealloc__(self):
        free(self._ring)
        if self._bell >= 0:
            os.close(self._heard)
            os.close(self._bell)

    def run(self):
        """Reads until it is told to stop or the connection is lost."""
        with nogil:
            self._read_on()

    def stop(self):
        store(&self._stopped, 1)

    def receive(self, room):
        """How many bytes were put into `room`; 0: none have come. Raises OSError once all that came is used."""
        cdef Py_buffer view
        cdef size_t failed = load(&self._failed), begin = self._taken % self._room, size, first
        PyObject_GetBuffer(room, &view, PyBUF_WRITABLE)
        size = min(self._unused(), <size_t> view.len)
        first = min(size, self._room - begin)
        memcpy(view.buf, self._ring + begin, first)
        memcpy(<unsigned char *> view.buf + first, self._ring, size - first)
        PyBuffer_Release(&view)
        store(&self._taken, self._taken + size)
        if failed and size == 0:
            raise OSError(failed - 1, os.strerror(failed - 1) if failed > 1 else "the server closed it")
        return size

    def wait(self, double seconds):
        """Whether something has come, or the connection is lost. Waits for it, at most so long.

        While bytes come, that is until they are many, or were held back for 5 ms; after a pause the first are enough."""
        cdef pollfd wanted
        cdef char rung
        wanted.fd, wanted.events = self._heard, POLLIN
        store(&self._waiting, 1)
        with nogil:
            if not self._news():
                poll(&wanted, 1, <int> (seconds * 1000))
            if not exchange(&self._waiting, 0):  # it was rung, or is just now
                poll(&wanted, 1, -1)
                read(self._heard, &rung, 1)
        return self._news()

    cdef bint _news(self) noexcept nogil:
        return self._unused() > 0 or load(&self._failed) > 0

    cdef size_t _unused(self) noexcept nogil:
        return load(&self._put) - load(&self._taken)

    # The reader's.

    cdef void _ring_bell(self) noexcept nogil:
        if self._news() and exchange(&self._waiting, 0):
            write(self._bell, b"!", 1)

    cdef void _read_on(self) noexcept nogil:
        cdef bint quiet = True
        cdef unsigned int nap = LONGEST_NAP, held = 0
        cdef size_t room
        cdef ssize_t got
        while not load(&self._stopped):
            if quiet and not self._something_comes():
                continue
            room = min(self._room - self._unused(), self._room - self._put % self._room, <size_t> PIECE)
            got = recv(self._socket, self._ring + self._put % self._room, room, MSG_DONTWAIT) if room else 0
            if got > 0:
                store(&self._put, self._put + got)
            elif room and (got == 0 or (errno != EAGAIN and errno != EINTR)):
                store(&self._failed, 1 if got == 0 else errno + 1)
                self._ring_bell()
                return
            if quiet or got <= 0 or held >= HELD_BACK or self._unused() >= MANY:
                self._ring_bell()
                held = 0
            quiet = room > 0 and got < 0
            if not quiet:
                nap = _fitting(nap, got)
                usleep(nap)
                held += nap

    cdef bint _something_comes(self) noexcept nogil:
        cdef pollfd wanted
        wanted.fd, wanted.events = self._socket, POLLIN
        return poll(&wanted, 1, IDLE) != 0
