# cython: language_level=3, cdivision=True
"""The fast path: the bytes of pgoutput messages and COPY rows to Avro bytes, by a table's plan, in one walk each.

In: bytes as the server sends them, or decoded rows. Out: what the reference path gives, byte for byte, and its errors:
MalformedMessage with the offset in the message, ValueNotCarried with the column. Nothing is read past the end of the
input. One transcoder serves one thread.
"""

import time

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from capture.transcode.avro_out cimport (
    Buffer, give_back, put_byte, put_bytes, put_double, put_float, put_hex, put_long, put_raw, put_some_long,
)
from capture.transcode.clock cimport floor_thousandth, read_clock
from capture.transcode.copy_in cimport read_copy_row
from capture.transcode.pgoutput_in cimport (
    IS_NULL, IS_UNCHANGED, Field, Input,
    finish, malformed, open_input, read_byte, read_tuple, read_unsigned, same, unknown,
)
from capture.transcode.value_text cimport (
    is_utf8, read_date, read_double, read_integer, read_time, read_timestamp,
)

from capture.pgoutput.messages import UNCHANGED
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

cdef object _UNCHANGED = UNCHANGED
cdef object _time_ns = time.time_ns

assert [int(code) for code in Code] == list(range(TIMESTAMP + 1)), "the codes of the plan are not the kernel's"


def relation_of(frame, Py_ssize_t offset=0):
    """The relation of the Insert, Update or Delete that begins at `offset`; None for every other message."""
    cdef Py_buffer view
    cdef Input source
    cdef int tag
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        open_input(&source, &view, offset)
        tag = read_byte(&source)
        if tag != c'I' and tag != c'U' and tag != c'D':
            return None
        return read_unsigned(&source, 4)
    finally:
        PyBuffer_Release(&view)


cdef class KernelTranscoder:
    """Writes the records of one version of one table; the same interface and bytes as the reference Transcoder."""

    cdef readonly object table
    cdef readonly object schema_id
    cdef object _now_ns, _snapshot
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

    def key(self, row):
        """The record's key: the row's identity as Avro; None for a table without one."""
        cdef Py_ssize_t i
        if self._key_head is None:
            return None
        row = self._load(row, self._new)
        self._out.size = 0
        put_bytes(&self._out, self._key_head)
        for i in range(self._count):
            if self._keys[i]:
                self._put_field(i, &self._new[i])
        return self._taken()

    def value(self, op, before, after, origin):
        cdef Field *old = NULL
        cdef Field *new = NULL
        if before is not None:
            before = self._load(before, self._old)
            old = self._old
        if after is not None:
            after = self._load(after, self._new)
            new = self._new
        self._put_value(<bytes> self._ops[op], old, new, origin)
        return self._taken()

    def change(self, frame, origin, Py_ssize_t offset=0):
        """The record of the Insert, Update or Delete that begins at `offset`; None for a move, which is two records."""
        cdef Py_buffer view
        cdef Input source
        cdef int tag
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            open_input(&source, &view, offset)
            tag = read_byte(&source)
            if tag == c'I':
                return self._insert_message(&source, origin)
            if tag == c'U':
                return self._update_message(&source, origin)
            if tag == c'D':
                return self._delete_message(&source, origin)
            raise malformed("The message is not a change of a row", 0)
        finally:
            PyBuffer_Release(&view)

    def copy_row(self, line, origin):
        """The record of one row of COPY in text format, its newline included."""
        cdef Py_buffer view
        PyObject_GetBuffer(line, &view, PyBUF_SIMPLE)
        try:
            read_copy_row(<const unsigned char *> view.buf, view.len, self._new, self._count, &self._unescaped)
            return self._record(self._read, NULL, self._new, origin)
        finally:
            PyBuffer_Release(&view)

    def copy_rows(self, messages, origin, list rows):
        """The records of the CopyData messages that come first, appended to `rows` as produce_batch takes them.

        Returns how many bytes it read, and how many bytes the values have: it stops before what is cut off or no
        CopyData. `origin.ordinal` moves on."""
        cdef Py_buffer view
        cdef const unsigned char *data
        cdef Py_ssize_t at = 0, size, written = 0, row = PyBytes_GET_SIZE(self._head) + 1, ordinal_at, tail
        cdef int64_t ordinal = origin.ordinal
        cdef bytes rest
        cdef const char *same
        # All but the row and its ordinal is the same for every row of a call: a record without a row is the pattern.
        self._put_value(self._read, NULL, NULL, origin)
        ordinal_at = self._ordinal_at
        rest = self._taken()
        same = PyBytes_AS_STRING(rest)
        tail = ordinal_at + 1
        while same[tail - 1] & 0x80:
            tail += 1
        PyObject_GetBuffer(messages, &view, PyBUF_SIMPLE)
        try:
            data = <const unsigned char *> view.buf
            while view.len - at >= 5 and data[at] == c'd':
                size = (<Py_ssize_t> data[at + 1] << 24) | (data[at + 2] << 16) | (data[at + 3] << 8) | data[at + 4]
                if size < 4:
                    raise malformed("A message of COPY is shorter than its length", at)
                if view.len - at - 1 < size:
                    break
                read_copy_row(data + at + 5, size - 4, self._new, self._count, &self._unescaped)
                self._out.size = 0
                put_raw(&self._out, same, row)
                self._put_row(self._new)
                put_raw(&self._out, same + row + 1, ordinal_at - row - 1)
                put_long(&self._out, ordinal)
                put_raw(&self._out, same + tail, PyBytes_GET_SIZE(rest) - tail)
                key, value = self._taken_with_key()
                rows.append({"key": key, "value": value})
                written += PyBytes_GET_SIZE(value)
                ordinal += 1
                at += 1 + size
            return at, written
        finally:
            origin.ordinal = ordinal
            PyBuffer_Release(&view)

    # ---- messages to fields

    cdef object _insert_message(self, Input *source, origin):
        cdef Py_ssize_t count
        cdef int tag
        read_unsigned(source, 4)
        tag = read_byte(source)
        if tag != c'N':
            raise unknown(source, "new tuple", tag)
        count = read_tuple(source, self._new, self._count)
        finish(source)
        self._check_count(count)
        return self._record(self._create, NULL, self._new, origin)

    cdef object _delete_message(self, Input *source, origin):
        cdef Py_ssize_t count
        cdef int tag
        read_unsigned(source, 4)
        tag = read_byte(source)
        if tag != c'K' and tag != c'O':
            raise unknown(source, "old tuple" if tag == c'N' else "tuple", tag)
        count = read_tuple(source, self._old, self._count)
        finish(source)
        self._check_count(count)
        return self._record(self._delete, self._old, NULL, origin)

    cdef object _update_message(self, Input *source, origin):
        cdef Py_ssize_t old_count = self._count, count, i
        cdef int tag, kind
        cdef bint moved = False
        read_unsigned(source, 4)
        kind = tag = read_byte(source)
        if tag != c'N':
            if tag != c'K' and tag != c'O':
                raise unknown(source, "tuple", tag)
            old_count = read_tuple(source, self._old, self._count)
            tag = read_byte(source)
            if tag != c'N':
                raise unknown(source, "new tuple", tag)
        count = read_tuple(source, self._new, self._count)
        finish(source)
        self._check_count(old_count)
        self._check_count(count)
        if kind == c'N':
            return self._record(self._update, NULL, self._new, origin)
        for i in range(self._count):
            if self._new[i].size == IS_UNCHANGED:
                if self._keys[i] or kind == c'O':
                    self._new[i] = self._old[i]
            elif self._keys[i] and not same(&self._old[i], &self._new[i]):
                moved = True
        if moved:
            return None
        return self._record(self._update, self._old if kind == c'O' else NULL, self._new, origin)

    cdef int _check_count(self, Py_ssize_t count) except -1:
        if count != self._count:
            raise malformed(f"A row has {count} columns instead of {self._count}", 0)
        return 0

    cdef tuple _load(self, row, Field *fields):
        """Points `fields` into the values of `row`; valid as long as the tuple that is returned."""
        cdef tuple values = tuple(row)
        cdef Py_ssize_t i
        self._check_count(len(values))
        for i in range(self._count):
            value = values[i]
            fields[i].data = NULL
            if value is None:
                fields[i].size = IS_NULL
            elif value is _UNCHANGED:
                fields[i].size = IS_UNCHANGED
            elif PyBytes_Check(value):
                fields[i].data = <const unsigned char *> PyBytes_AS_STRING(value)
                fields[i].size = PyBytes_GET_SIZE(value)
            else:
                raise TypeError("a column value is bytes, None or UNCHANGED")
        return values

    # ---- fields to Avro

    cdef tuple _record(self, bytes op, Field *before, Field *after, origin):
        """Key and value. A column has the same bytes in both, so the key is put together from pieces of the value."""
        self._put_value(op, before, after, origin)
        return self._taken_with_key()

    cdef tuple _taken_with_key(self):
        cdef Py_ssize_t size, i
        cdef bytes key
        cdef char *to
        if self._key_head is None:
            return None, self._taken()
        size = PyBytes_GET_SIZE(self._key_head)
        for i in range(self._count):
            if self._keys[i]:
                size += self._ends[i] - self._starts[i]
        key = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(key)
        size = PyBytes_GET_SIZE(self._key_head)
        memcpy(to, PyBytes_AS_STRING(self._key_head), size)
        for i in range(self._count):
            if self._keys[i]:
                memcpy(to + size, self._out.data + self._starts[i], self._ends[i] - self._starts[i])
                size += self._ends[i] - self._starts[i]
        return key, self._taken()

    cdef bytes _taken(self):
        cdef bytes taken = PyBytes_FromStringAndSize(<char *> self._out.data, self._out.size)
        give_back(&self._out)
        give_back(&self._unescaped)
        return taken

    cdef int _put_value(self, bytes op, Field *before, Field *after, origin) except -1:
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
                put_some_long(out, size)
                return put_raw(out, text, size)
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
