# cython: language_level=3, cdivision=True
"""The writing half of the fast path: fields of a row to the Avro bytes of a record, by the table's plan.

A field whose text is not the plain one of its type goes through the reference conversion of its column.
"""

import time

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from capture.transcode.avro_out cimport (
    Buffer, give_back, put_byte, put_bytes, put_double, put_float, put_hex, put_long, put_raw, put_some_long,
    put_some_raw,
)
from capture.transcode.clock cimport floor_thousandth, read_clock
from capture.transcode.kernel_batch cimport KernelBatch
from capture.transcode.pgoutput_in cimport IS_UNCHANGED, Field
from capture.transcode.value_text cimport (
    is_utf8, read_date, read_double, read_integer, read_time, read_timestamp,
)

from capture.transcode.plan import Code, table_plan
from schemas.envelope import Op

cdef enum:  # capture.transcode.plan.Code
    OTHER = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TEXT = 6
    BYTES = 7
    DATE = 8
    TIME = 9
    TIMESTAMP = 10

cdef object _time_ns = time.time_ns

assert [int(code) for code in Code] == list(range(TIMESTAMP + 1)), "the codes of the plan are not the kernel's"


cdef class KernelOrigin:
    """The reference's Origin, with its numbers where C reads them."""

    def __init__(self, int64_t commit_lsn, int64_t commit_ts, xid, int64_t lsn, int64_t ordinal, snapshot="false"):
        self.commit_lsn, self.commit_ts, self.xid = commit_lsn, commit_ts, xid
        self.lsn, self.ordinal, self.snapshot = lsn, ordinal, snapshot


cdef class RecordWriter:
    """Holds a table's plan, and the buffers in which its records are put together."""

    def __cinit__(self, pipeline, database, table, ids, epoch, now_ns=_time_ns):
        cdef Py_ssize_t i, room
        self._count = len(table.columns)
        room = max(self._count, <Py_ssize_t> 1)
        self._codes = <unsigned char *> PyMem_Malloc(room)
        self._keys = <unsigned char *> PyMem_Malloc(room)
        self._old = <Field *> PyMem_Malloc(room * sizeof(Field))
        self._new = <Field *> PyMem_Malloc(room * sizeof(Field))
        self._starts = <Py_ssize_t *> PyMem_Malloc(room * sizeof(Py_ssize_t))
        self._ends = <Py_ssize_t *> PyMem_Malloc(room * sizeof(Py_ssize_t))
        if not (self._codes and self._keys and self._old and self._new and self._starts and self._ends):
            raise MemoryError
        plan = table_plan(pipeline, database, table, ids, epoch)
        self.table = table
        self.schema_id = ids[0]
        self._now_ns = now_ns
        self._origin = KernelOrigin(0, 0, None, 0, 0)
        self._head, self._key_head = plan.head, plan.key_head
        self._source_head, self._source_database = plan.source_head, plan.source_database
        self._source_table, self._source_origin, self._source_tail = plan.source_table, plan.source_origin, plan.source_tail
        self._ops = plan.ops
        # The hash of an Op is computed in Python, so a change does not look its op up.
        self._create, self._update, self._delete, self._read = [
            plan.ops[op] for op in (Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ)]
        self._encoders = tuple([column.encode for column in plan.columns])
        self._names = tuple([column.name for column in plan.columns])
        for i, column in enumerate(plan.columns):
            self._codes[i] = column.code
            self._keys[i] = column.key

    def __dealloc__(self):
        PyMem_Free(self._codes)
        PyMem_Free(self._keys)
        PyMem_Free(self._old)
        PyMem_Free(self._new)
        PyMem_Free(self._starts)
        PyMem_Free(self._ends)
        PyMem_Free(self._out.data)
        PyMem_Free(self._unescaped.data)

    # The value stands in `_out`. A column has the same bytes in the key, which is put together from pieces of the value.

    cdef Py_ssize_t key_size(self) noexcept:
        """0: the table has no key."""
        cdef Py_ssize_t i, size
        if self._key_head is None:
            return 0
        size = PyBytes_GET_SIZE(self._key_head)
        for i in range(self._count):
            if self._keys[i]:
                size += self._ends[i] - self._starts[i]
        return size

    cdef Py_ssize_t value_size(self) noexcept:
        return self._out.size

    cdef int give(self, KernelBatch batch) except -1:
        """Adds the record to the batch."""
        cdef Py_ssize_t key = self.key_size()
        batch.begin(key, self._out.size)
        if key:
            self._put_key(batch.bytes.data + batch.bytes.size)
            batch.bytes.size += key
        put_raw(&batch.bytes, self._out.data, self._out.size)
        give_back(&self._out)
        give_back(&self._unescaped)
        return 0

    cdef void _put_key(self, unsigned char *to) noexcept:
        cdef Py_ssize_t i, size = PyBytes_GET_SIZE(self._key_head)
        memcpy(to, PyBytes_AS_STRING(self._key_head), size)
        for i in range(self._count):
            if self._keys[i]:
                memcpy(to + size, self._out.data + self._starts[i], self._ends[i] - self._starts[i])
                size += self._ends[i] - self._starts[i]

    cdef tuple _taken_with_key(self):
        cdef Py_ssize_t size = self.key_size()
        cdef bytes key = None
        if size:
            key = PyBytes_FromStringAndSize(NULL, size)
            self._put_key(<unsigned char *> PyBytes_AS_STRING(key))
        return key, self._taken()

    cdef bytes _taken(self):
        cdef bytes taken = PyBytes_FromStringAndSize(<char *> self._out.data, self._out.size)
        give_back(&self._out)
        give_back(&self._unescaped)
        return taken

    cdef int _put_value(self, bytes op, Field *before, Field *after, KernelOrigin origin) except -1:
        cdef Buffer *out = &self._out
        cdef int64_t now = self._now(), commit_ts = origin.commit_ts
        if commit_ts > 9223372036854775LL or commit_ts < -9223372036854775LL:
            raise OverflowError("a commit time is too far from 1970 for nanoseconds in 64 bits")
        out.size = 0
        put_bytes(out, self._head)
        self._put_row(before)
        self._put_row(after)
        put_bytes(out, self._source_head)
        put_long(out, floor_thousandth(commit_ts))
        self._put_snapshot(origin.snapshot)
        put_bytes(out, self._source_database)
        put_some_long(out, commit_ts)
        put_some_long(out, commit_ts * 1000)
        put_bytes(out, self._source_table)
        xid = origin.xid
        if xid is None:
            put_byte(out, 0)
        else:
            put_some_long(out, xid)
        put_some_long(out, origin.lsn)
        put_bytes(out, self._source_origin)
        put_long(out, origin.commit_lsn)
        self._ordinal_at = out.size
        put_long(out, origin.ordinal)
        put_bytes(out, self._source_tail)
        put_bytes(out, op)
        put_some_long(out, floor_thousandth(floor_thousandth(now)))
        put_some_long(out, floor_thousandth(now))
        put_some_long(out, now)
        return self._put_unchanged(after)

    cdef int64_t _now(self) except? -1:
        cdef int64_t now = 0
        if self._now_ns is _time_ns and read_clock(&now):
            return now
        return self._now_ns()

    cdef int _put_snapshot(self, snapshot) except -1:
        if snapshot is not self._snapshot:
            text = snapshot.encode()
            if len(text) > 63:
                raise ValueError("a snapshot mark is at most 63 bytes")
            self._snapshot_bytes = bytes((0, len(text) * 2)) + text
            self._snapshot = snapshot
        return put_bytes(&self._out, self._snapshot_bytes)

    cdef int _put_unchanged(self, Field *after) except -1:
        cdef Py_ssize_t i, count = 0
        if after != NULL:
            for i in range(self._count):
                count += after[i].size == IS_UNCHANGED
        if count:
            put_long(&self._out, count)
            for i in range(self._count):
                if after[i].size == IS_UNCHANGED:
                    put_bytes(&self._out, <bytes> self._names[i])
        return put_byte(&self._out, 0)

    cdef int _put_row(self, Field *fields) except -1:
        cdef Py_ssize_t i
        if fields == NULL:
            return put_byte(&self._out, 0)
        put_byte(&self._out, 2)
        for i in range(self._count):
            self._starts[i] = self._out.size
            self._put_field(i, &fields[i])
            self._ends[i] = self._out.size
        return 0

    cdef int _put_field(self, Py_ssize_t i, Field *field) except -1:
        cdef Buffer *out = &self._out
        cdef const unsigned char *text = field.data
        cdef Py_ssize_t size = field.size
        cdef unsigned char code = self._codes[i]
        cdef int64_t whole = 0
        cdef double real = 0
        if size < 0:
            return put_byte(out, 0)
        if code == TEXT:
            if is_utf8(text, size):
                return put_some_raw(out, text, size)
        elif code == LONG:
            if read_integer(text, size, &whole):
                return put_some_long(out, whole)
        elif code == INT:
            if read_integer(text, size, &whole) and -2147483648LL <= whole <= 2147483647LL:
                return put_some_long(out, whole)
        elif code == TIMESTAMP:
            if read_timestamp(text, size, &whole):
                return put_some_long(out, whole)
        elif code == BOOLEAN:
            if size == 1 and (text[0] == c't' or text[0] == c'f'):
                put_byte(out, 2)
                return put_byte(out, text[0] == c't')
        elif code == DOUBLE or code == FLOAT:
            if read_double(text, size, &real):
                return put_double(out, real) if code == DOUBLE else put_float(out, real)
        elif code == DATE:
            if read_date(text, size, &whole):
                return put_some_long(out, whole)
        elif code == TIME:
            if read_time(text, size, &whole):
                return put_some_long(out, whole)
        elif code == BYTES:
            if put_hex(out, text, size):
                return 0
        return put_bytes(out, <bytes> self._encoders[i](PyBytes_FromStringAndSize(<char *> text, size)))
