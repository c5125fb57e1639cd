# cython: language_level=3
"""What the kernel and its sender use of a batch."""

from capture.transcode.avro_out cimport Buffer


cdef struct Sizes:
    Py_ssize_t key  # 0: the record has none
    Py_ssize_t value


cdef class KernelBatch:
    cdef Buffer bytes
    cdef Sizes *sizes
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef readonly Py_ssize_t size

    cdef int begin(self, Py_ssize_t key, Py_ssize_t value) except -1
