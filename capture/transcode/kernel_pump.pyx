# cython: language_level=3, cdivision=True
"""The fast pump: frames of the walsender to records of Kafka, without a Python object between them.

It takes the well-formed frames that make up nearly all of a stream and leaves every other one, damaged ones included,
to its caller, who decodes them on the reference path. So it has no errors of its own but those of a table's transcoder.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint64_t

from capture.transcode.kernel cimport KernelTranscoder
from capture.transcode.kernel_batch cimport KernelBatch
from capture.transcode.kernel_record cimport KernelOrigin
from capture.transcode.pgoutput_in cimport Input, malformed

from capture.errors import RecordTooLarge
from capture.pgoutput.decoder import LARGEST_TIME, POSTGRES_EPOCH

cdef enum:
    HEADER = 5  # of CopyData: its letter, and its length without the letter
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
    cdef readonly Py_ssize_t used
    cdef public int64_t safe, full
    cdef object _tables, _send
    cdef Py_ssize_t _largest
    cdef int64_t _relation
    cdef bint _errored
    cdef KernelTranscoder _transcoder
    cdef _Count _count
    cdef KernelBatch _batch
    cdef dict _counts, _batches

    def __init__(self, tables, send, Py_ssize_t largest, int64_t safe, int64_t commit_ts, int64_t full):
        self.origin = KernelOrigin(0, commit_ts, None, 0, 0)
        self._tables, self._send, self._largest, self.safe, self.full = tables, send, largest, safe, full
        self._counts, self._batches = {}, {}

    def run(self, messages):
        cdef Py_buffer view
        cdef Py_ssize_t left
        PyObject_GetBuffer(messages, &view, PyBUF_SIMPLE)
        self.used = 0
        self._relation = -1  # what is known of a table may have changed since
        try:
            left = self._walk(<const unsigned char *> view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
            self._hand_on()
        return None if left < 0 else memoryview(messages)[self.used - left:self.used]

    def send(self, table, key, value):
        self._look_up(table)
        self._count_in(0 if key is None else len(key), len(value))
        self._batch.add(key, value)
        self._hand_on()

    def moved(self):
        return {place: ((<_Count> count).rows, (<_Count> count).size)
                for place, count in self._counts.items() if (<_Count> count).rows}

    def reset(self):
        self._counts = {}
        self.rows = 0

    cdef Py_ssize_t _walk(self, const unsigned char *data, Py_ssize_t size) except -2:
        """The size of the frame that was left; -1: none was."""
        cdef Py_ssize_t begin = 0, length
        while size - begin >= HEADER and data[begin] == c'd':
            length = _big_endian(data + begin + 1, 4)
            if size - begin - 1 < length:
                break
            if length < HEADER - 1:
                raise malformed("A message of COPY is shorter than its length", begin)
            self.used = begin + 1 + length
            if not self._take(data + begin + HEADER, length + 1 - HEADER):
                return length + 1 - HEADER
            if self.rows >= self.full and not self.in_transaction:
                break
            begin = self.used
        return -1

    cdef int _take(self, const unsigned char *data, Py_ssize_t size) except -1:
        """1, or 0 and nothing done if the frame is left."""
        cdef unsigned char tag
        if size <= HEAD or data[0] != c'w' or data[1] > 127:
            return 0
        tag = data[HEAD]
        if tag == c'I' or tag == c'U' or tag == c'D':
            return size >= CHANGE and self._change(data, size)
        if tag == c'B':
            return size == BEGIN and self._begin(data + HEAD + 1)
        if tag == c'C':
            return size == COMMIT and self._commit(data + HEAD + 1)
        return 0

    cdef int _change(self, const unsigned char *data, Py_ssize_t size) except -1:
        cdef int64_t relation = _big_endian(data + HEAD + 1, 4)
        cdef Input source = Input(data + HEAD, size - HEAD, 0)
        cdef Py_ssize_t key, value
        if relation != self._relation:
            self._look_up(self._tables[relation])
            self._relation = relation
        if self._errored:
            return 0
        self.origin.lsn = _big_endian(data + 1, 8)
        if not self._transcoder.write_change(&source, self.origin):
            return 0
        key, value = self._transcoder.key_size(), self._transcoder.value_size()
        self._count_in(key, value)
        self._transcoder.give(self._batch)
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
        topic = table.topic
        self.table, self._errored, self._transcoder = table, table.errored, table.transcoder
        self._count = self._counts.get((topic, self._transcoder.schema_id))
        if self._count is None:
            self._count = self._counts[topic, self._transcoder.schema_id] = _Count()
        self._batch = self._batches.get(topic)
        if self._batch is None:
            self._batch = self._batches[topic] = KernelBatch()
        return 0

    cdef int _count_in(self, Py_ssize_t key, Py_ssize_t value) except -1:
        """A record that is not too large."""
        if key + value > self._largest:
            raise RecordTooLarge(key + value, self._largest)
        self._count.rows += 1
        self._count.size += value
        self.rows += 1
        return 0

    cdef int _hand_on(self) except -1:
        batches, self._batches = self._batches, {}
        for topic, batch in batches.items():
            if (<KernelBatch> batch).count:
                self._send(topic, batch)
        return 0
