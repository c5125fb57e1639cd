# cython: language_level=3
"""What the pump uses of the kernel: the record of a change."""

from capture.transcode.kernel_record cimport KernelOrigin, RecordWriter
from capture.transcode.pgoutput_in cimport Field, Input


cdef class KernelTranscoder(RecordWriter):
    cdef object record_of(self, Input *source, KernelOrigin origin)
    cdef KernelOrigin _known(self, origin)
    cdef object _insert_message(self, Input *source, KernelOrigin origin)
    cdef object _delete_message(self, Input *source, KernelOrigin origin)
    cdef object _update_message(self, Input *source, KernelOrigin origin)
    cdef int _check_count(self, Py_ssize_t count) except -1
    cdef tuple _load(self, row, Field *fields)
