# cython: language_level=3
"""What the reading half and the pump use of the writing half."""

from libc.stdint cimport int64_t

from capture.transcode.avro_out cimport Buffer
from capture.transcode.kernel_batch cimport KernelBatch
from capture.transcode.pgoutput_in cimport Field


cdef class KernelOrigin:
    cdef public int64_t commit_lsn, commit_ts, lsn, ordinal
    cdef public object xid, snapshot


cdef class RecordWriter:
    cdef readonly object table
    cdef readonly object schema_id
    cdef object _now_ns, _snapshot
    cdef KernelOrigin _origin
    cdef tuple _encoders, _names
    cdef dict _ops
    cdef bytes _head, _key_head, _source_head, _source_database, _source_table, _source_origin, _source_tail
    cdef bytes _snapshot_bytes, _create, _update, _delete, _read
    cdef Py_ssize_t _count, _ordinal_at
    cdef unsigned char *_codes
    cdef unsigned char *_keys
    cdef Field *_old
    cdef Field *_new
    cdef Py_ssize_t *_starts
    cdef Py_ssize_t *_ends
    cdef Buffer _out
    cdef Buffer _unescaped

    cdef Py_ssize_t key_size(self) noexcept
    cdef Py_ssize_t value_size(self) noexcept
    cdef int give(self, KernelBatch batch) except -1
    cdef void _put_key(self, unsigned char *to) noexcept
    cdef tuple _taken_with_key(self)
    cdef bytes _taken(self)
    cdef int _put_value(self, bytes op, Field *before, Field *after, KernelOrigin origin) except -1
    cdef int64_t _now(self) except? -1
    cdef int _put_snapshot(self, snapshot) except -1
    cdef int _put_unchanged(self, Field *after) except -1
    cdef int _put_row(self, Field *fields) except -1
    cdef int _put_field(self, Py_ssize_t i, Field *field) except -1
