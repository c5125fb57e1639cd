# cython: language_level=3, cdivision=True
"""The fast path: the bytes of pgoutput messages and COPY rows to Avro bytes, by a table's plan, in one walk each.

In: bytes as the server sends them, or decoded rows. Out: what the reference path gives, byte for byte, and its errors:
MalformedMessage with the offset in the message, ValueNotCarried with the column. Nothing is read past the end of the
input. One transcoder serves one thread.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from capture.transcode.avro_out cimport put_bytes, put_long, put_raw
from capture.transcode.copy_in cimport read_copy_row
from capture.transcode.kernel_batch cimport KernelBatch
from capture.transcode.kernel_record cimport KernelOrigin, RecordWriter
from capture.transcode.pgoutput_in cimport (
    IS_NULL, IS_UNCHANGED, Field, Input,
    finish, malformed, open_input, read_byte, read_tuple, read_unsigned, same, unknown,
)

from capture.pgoutput.messages import UNCHANGED

cdef object _UNCHANGED = UNCHANGED


cdef class KernelTranscoder(RecordWriter):
    """Writes the records of one version of one table; the same interface and bytes as the reference Transcoder."""

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
        self._put_value(<bytes> self._ops[op], old, new, self._known(origin))
        return self._taken()

    def change(self, frame, origin, Py_ssize_t offset=0):
        """The record of the Insert, Update or Delete that begins at `offset`; None for a move, which is two records."""
        cdef Py_buffer view
        cdef Input source
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            open_input(&source, &view, offset)
            return self._taken_with_key() if self.write_change(&source, self._known(origin)) else None
        finally:
            PyBuffer_Release(&view)

    def copy_row(self, line, origin):
        """The record of one row of COPY in text format, its newline included."""
        cdef Py_buffer view
        PyObject_GetBuffer(line, &view, PyBUF_SIMPLE)
        try:
            read_copy_row(<const unsigned char *> view.buf, view.len, self._new, self._count, &self._unescaped)
            self._put_value(self._read, NULL, self._new, self._known(origin))
            return self._taken_with_key()
        finally:
            PyBuffer_Release(&view)

    def copy_rows(self, messages, origin, KernelBatch rows not None):
        """Adds the records of the CopyData messages that come first to `rows`.

        Returns how many bytes it read: it stops before what is cut off or no CopyData. `origin.ordinal` moves on."""
        cdef Py_buffer view
        cdef const unsigned char *data
        cdef Py_ssize_t at = 0, size, row = PyBytes_GET_SIZE(self._head) + 1, ordinal_at, tail
        cdef int64_t ordinal = origin.ordinal
        cdef bytes rest
        cdef const char *same
        # All but the row and its ordinal is the same for every row of a call: a record without a row is the pattern.
        self._put_value(self._read, NULL, NULL, self._known(origin))
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
                self.give(rows)
                ordinal += 1
                at += 1 + size
            return at
        finally:
            origin.ordinal = ordinal
            PyBuffer_Release(&view)

    cdef KernelOrigin _known(self, origin):
        if type(origin) is KernelOrigin:
            return origin
        self._origin.commit_lsn, self._origin.commit_ts, self._origin.xid = origin.commit_lsn, origin.commit_ts, origin.xid
        self._origin.lsn, self._origin.ordinal, self._origin.snapshot = origin.lsn, origin.ordinal, origin.snapshot
        return self._origin

    # ---- messages to fields

    cdef int write_change(self, Input *source, KernelOrigin origin) except -1:
        """Writes the value of what begins where `source` does: 1, or 0 for a move."""
        cdef int tag = read_byte(source)
        if tag == c'I':
            return self._insert_message(source, origin)
        if tag == c'U':
            return self._update_message(source, origin)
        if tag == c'D':
            return self._delete_message(source, origin)
        raise malformed("The message is not a change of a row", 0)

    cdef int _insert_message(self, Input *source, KernelOrigin origin) except -1:
        cdef Py_ssize_t count
        cdef int tag
        read_unsigned(source, 4)
        tag = read_byte(source)
        if tag != c'N':
            raise unknown(source, "new tuple", tag)
        count = read_tuple(source, self._new, self._count)
        finish(source)
        self._check_count(count)
        self._put_value(self._create, NULL, self._new, origin)
        return 1

    cdef int _delete_message(self, Input *source, KernelOrigin origin) except -1:
        cdef Py_ssize_t count
        cdef int tag
        read_unsigned(source, 4)
        tag = read_byte(source)
        if tag != c'K' and tag != c'O':
            raise unknown(source, "old tuple" if tag == c'N' else "tuple", tag)
        count = read_tuple(source, self._old, self._count)
        finish(source)
        self._check_count(count)
        self._put_value(self._delete, self._old, NULL, origin)
        return 1

    cdef int _update_message(self, Input *source, KernelOrigin origin) except -1:
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
            self._put_value(self._update, NULL, self._new, origin)
            return 1
        for i in range(self._count):
            if self._new[i].size == IS_UNCHANGED:
                if self._keys[i] or kind == c'O':
                    self._new[i] = self._old[i]
            elif self._keys[i] and not same(&self._old[i], &self._new[i]):
                moved = True
        if moved:
            return 0
        self._put_value(self._update, self._old if kind == c'O' else NULL, self._new, origin)
        return 1

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
