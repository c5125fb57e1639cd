# cython: language_level=3
"""What the pump uses of the kernel: where a row stands, and the record of a change."""

from libc.stdint cimport int64_t

from capture.transcode.avro_out cimport Buffer
from capture.transcode.pgoutput_in cimport Field, Input


cdef class KernelOrigin:
    cdef public int64_t commit_lsn, commit_ts, lsn, ordinal
    cdef public object xid, snapshot


cdef class KernelTranscoder:
    cdef readonly object table
    cdef readonly object schema_id
    cdef object _now_ns, _snapshot
    cdef KernelOrigin _origin
    cdef tuple _encoders, _names
    cdef dict _ops
    cdef bytes _head, _key_head, _source_head, _source_database, _source_table, _source_origin, _source_tail
    cdef bytes _snapshot_bytes, _create, _update, _delete, _read
    cdef Py_ssize_t _count
    cdef unsigned char *_codes
    cdef unsigned char *_keys
    cdef Field *_old
    cdef Field *_new
    cdef Py_ssize_t *_starts
    cdef Py_ssize_t *_ends
    cdef Buffer _out
    cdef Buffer _unescaped

    cdef object record_of(self, Input *source, KernelOrigin origin)
    cdef KernelOrigin _known(self, origin)
    cdef object _insert_message(self, Input *source, KernelOrigin origin)
    cdef object _delete_message(self, Input *source, KernelOrigin origin)
    cdef object _update_message(self, Input *source, KernelOrigin origin)
    cdef int _check_count(self, Py_ssize_t count) except -1
    cdef tuple _load(self, row, Field *fields)
    cdef tuple _record(self, bytes op, Field *before, Field *after, KernelOrigin origin)
    cdef bytes _taken(self)
    cdef int _put_value(self, bytes op, Field *before, Field *after, KernelOrigin origin) except -1
    cdef int64_t _now(self) except? -1
    cdef int _put_snapshot(self, snapshot) except -1
    cdef int _put_unchanged(self, Field *after) except -1
    cdef int _put_row(self, Field *fields) except -1
    cdef int _put_field(self, Py_ssize_t i, Field *field) except -1
