# cython: language_level=3
"""What the pump uses of the kernel: the value of a change."""

from capture.transcode.kernel_record cimport KernelOrigin, RecordWriter
from capture.transcode.pgoutput_in cimport Field, Input


cdef class KernelTranscoder(RecordWriter):
    cdef int write_change(self, Input *source, KernelOrigin origin) except -1
    cdef KernelOrigin _known(self, origin)
    cdef int _insert_message(self, Input *source, KernelOrigin origin) except -1
    cdef int _delete_message(self, Input *source, KernelOrigin origin) except -1
    cdef int _update_message(self, Input *source, KernelOrigin origin) except -1
    cdef int _check_count(self, Py_ssize_t count) except -1
    cdef tuple _load(self, row, Field *fields)
