# cython: language_level=3, cdivision=True
"""The fast pump: frames of the walsender to records of Kafka, without a Python object between them.

It takes the well-formed frames that make up nearly all of a stream and leaves every other one, damaged ones included,
to its caller, who decodes them on the reference path. So it has no errors of its own but those of a table's transcoder.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from capture.transcode.kernel cimport KernelTranscoder
from capture.transcode.kernel_record cimport KernelOrigin
from capture.transcode.pgoutput_in cimport Input, open_input

from capture.pgoutput.decoder import LARGEST_TIME, POSTGRES_EPOCH

cdef enum:
    HEAD = 25  # of XLogData: tag, start, end, clock
    CHANGE = HEAD + 5  # tag, relation
    BEGIN = HEAD + 21  # tag, commit LSN, time, xid
    COMMIT = HEAD + 26  # tag, flags, commit LSN, end LSN, time

cdef int64_t _POSTGRES_EPOCH = POSTGRES_EPOCH
cdef int64_t _EARLIEST = -LARGEST_TIME - POSTGRES_EPOCH
cdef int64_t _LATEST = LARGEST_TIME - POSTGRES_EPOCH


cdef inline int64_t _big_endian(const unsigned char *data, int count) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(count):
        value = value << 8 | data[i]
    return <int64_t> value


cdef class _Count:
    cdef int64_t rows, size


cdef class KernelPump:
    """The same interface as the reference Pump."""

    cdef readonly KernelOrigin origin
    cdef readonly object table
    cdef readonly bint in_transaction
    cdef readonly int64_t rows
    cdef public int64_t safe, full
    cdef object _tables, _send, _topic
    cdef int64_t _relation
    cdef bint _errored
    cdef KernelTranscoder _transcoder
    cdef _Count _count
    cdef dict _counts

    def __init__(self, tables, send, int64_t safe, int64_t commit_ts, int64_t full):
        self.origin = KernelOrigin(0, commit_ts, None, 0, 0)
        self._tables, self._send, self.safe, self.full = tables, send, safe, full
        self._counts = {}

    def run(self, source, Py_ssize_t frames):
        self._relation = -1  # what is known of a table may have changed since
        for _ in range(frames):
            given = source(1)
            if <Py_ssize_t> given[0] <= 0 or not self._take(given[1]):
                return given
            if self.rows >= self.full and not self.in_transaction:
                return None
        return None

    def send(self, table, key, value):
        self._relation = -1
        self._look_up(table)
        self._hand_on(key, value)

    def moved(self):
        return {place: ((<_Count> count).rows, (<_Count> count).size)
                for place, count in self._counts.items() if (<_Count> count).rows}

    def reset(self):
        self._counts = {}
        self._relation = -1
        self.rows = 0

    cdef int _take(self, frame) except -1:
        """1, or 0 and nothing done if the frame is left."""
        cdef Py_buffer view
        cdef const unsigned char *data
        cdef unsigned char tag
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            data = <const unsigned char *> view.buf
            if view.len <= HEAD or data[0] != c'w' or data[1] > 127:
                return 0
            tag = data[HEAD]
            if tag == c'I' or tag == c'U' or tag == c'D':
                return view.len >= CHANGE and self._change(&view)
            if tag == c'B':
                return view.len == BEGIN and self._begin(data + HEAD + 1)
            if tag == c'C':
                return view.len == COMMIT and self._commit(data + HEAD + 1)
            return 0
        finally:
            PyBuffer_Release(&view)

    cdef int _change(self, Py_buffer *view) except -1:
        cdef const unsigned char *data = <const unsigned char *> view.buf
        cdef int64_t relation = _big_endian(data + HEAD + 1, 4)
        cdef Input source
        if relation != self._relation:
            self._look_up(self._tables[relation])
            self._relation = relation
        if self._errored:
            return 0
        self.origin.lsn = _big_endian(data + 1, 8)
        open_input(&source, view, HEAD)
        record = self._transcoder.record_of(&source, self.origin)
        if record is None:
            return 0
        self._hand_on((<tuple> record)[0], <bytes> (<tuple> record)[1])
        self.origin.ordinal += 1
        return 1

    cdef int _begin(self, const unsigned char *data) except -1:
        cdef int64_t lsn = _big_endian(data, 8), time = _big_endian(data + 8, 8)
        if lsn < 0 or not _EARLIEST <= time <= _LATEST:
            return 0
        self.origin.commit_lsn, self.origin.commit_ts, self.origin.ordinal = lsn, time + _POSTGRES_EPOCH, 0
        self.origin.xid = _big_endian(data + 16, 4)
        self.in_transaction = True
        return 1

    cdef int _commit(self, const unsigned char *data) except -1:
        cdef int64_t lsn = _big_endian(data + 1, 8), end = _big_endian(data + 9, 8), time = _big_endian(data + 17, 8)
        if data[0] != 0 or lsn < 0 or end < 0 or not _EARLIEST <= time <= _LATEST:
            return 0
        self.safe = end
        self.in_transaction = False
        return 1

    cdef int _look_up(self, table) except -1:
        self.table, self._topic, self._errored, self._transcoder = table, table.topic, table.errored, table.transcoder
        self._count = self._counts.setdefault((self._topic, self._transcoder.schema_id), _Count())
        return 0

    cdef int _hand_on(self, key, bytes value) except -1:
        self._send(self._topic, key, value)
        self._count.rows += 1
        self._count.size += PyBytes_GET_SIZE(value)
        self.rows += 1
        return 0
