# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Avro to Arrow in one walk over the bytes: records as an Arrow array of binaries in, an Arrow array of structs out.

A value is written at its row; a null is not written at all: the next value, or the end, fills the rows between. Nothing
is read past the end of a record. One decoder serves one thread at a time, and does not hold the interpreter lock while
it walks.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from apply_spark.arrow_out cimport (
    ARRAY, BOOLEAN, BYTES, CHOICE, DOUBLE, FLOAT, INT, LONG, NULL_, OPTIONAL, RECORD, STRING,
    Bytes, Column, Plan, begin, fill, grow, reserve,
)
from apply_spark.avro_in cimport (
    BAD_BOOLEAN, BAD_BRANCH, BAD_LENGTH, BAD_NUMBER, BAD_TEXT, CUT, FINE, LEFT_OVER, MOST_ITEMS, NO_MEMORY, TOO_LARGE,
    Input, is_utf8, read_count, read_length, read_long,
)

import pyarrow as pa

from apply_spark.avro_plan import Damaged

cdef enum:
    HEADER = 5

_REASONS = {
    CUT: "it ends too early",
    BAD_NUMBER: "a number is too long",
    BAD_LENGTH: "a length is below zero or beyond the end",
    BAD_BRANCH: "a union has no such branch",
    BAD_BOOLEAN: "a boolean is neither true nor false",
    BAD_TEXT: "a text is not UTF-8",
    LEFT_OVER: "it is longer than its schema says",
    TOO_LARGE: "an array has too many items",
}


cdef int _skip(Plan *plan, int index, Input *source) noexcept nogil:
    """Passes over a value."""
    cdef Column *column = &plan.columns[index]
    cdef int64_t number, i
    cdef int outcome = FINE
    cdef int kind = column.kind
    if kind == INT or kind == LONG:
        return read_long(source, &number)
    if kind == STRING or kind == BYTES:
        outcome = read_length(source, &number)
        if outcome == FINE:
            source.at += number
        return outcome
    if kind == OPTIONAL or kind == CHOICE:
        outcome = read_long(source, &number)
        if outcome != FINE:
            return outcome
        if number < 0 or number >= column.count:
            return BAD_BRANCH
        return _skip(plan, plan.children[column.first + number], source)
    if kind == RECORD:
        for i in range(column.count):
            outcome = _skip(plan, plan.children[column.first + i], source)
            if outcome != FINE:
                return outcome
        return FINE
    if kind == ARRAY:
        while True:
            outcome = read_count(source, &number)
            if outcome != FINE or number == 0:
                return outcome
            for i in range(number):
                outcome = _skip(plan, plan.children[column.first], source)
                if outcome != FINE:
                    return outcome
    number = 1 if kind == BOOLEAN else 4 if kind == FLOAT else 8 if kind == DOUBLE else 0
    if number > source.end - source.at:
        return CUT
    source.at += number
    return FINE


cdef int _read(Plan *plan, int index, Input *source, int64_t row) noexcept nogil:
    """Reads a value to its row."""
    cdef Column *column = &plan.columns[index]
    cdef int64_t number, i
    cdef int outcome
    cdef int kind = column.kind
    if not column.read:
        return _skip(plan, index, source)
    if kind == NULL_:
        return FINE
    if kind == OPTIONAL or kind == CHOICE:
        outcome = read_long(source, &number)
        if outcome != FINE:
            return outcome
        if number < 0 or number >= column.count:
            return BAD_BRANCH
        index = plan.children[column.first + number]
        if kind == CHOICE and plan.columns[index].kind != NULL_:
            outcome = begin(plan, column, row)
        return outcome if outcome != FINE else _read(plan, index, source, row)
    outcome = begin(plan, column, row)
    if outcome != FINE:
        return outcome
    if kind == INT or kind == LONG:
        outcome = read_long(source, &number)
        if outcome != FINE:
            return outcome
        if kind == LONG:
            (<int64_t *> column.data.data)[row] = number
        elif number != <int32_t> number:
            return BAD_NUMBER
        else:
            (<int32_t *> column.data.data)[row] = <int32_t> number
        return FINE
    if kind == STRING or kind == BYTES:
        outcome = read_length(source, &number)
        if outcome != FINE:
            return outcome
        if kind == STRING and not is_utf8(source.at, number):
            return BAD_TEXT
        if reserve(&column.data, column.data.size + number) != FINE:
            return NO_MEMORY
        memcpy(column.data.data + column.data.size, source.at, number)
        column.data.size += number
        source.at += number
        (<int32_t *> column.offsets.data)[row + 1] = <int32_t> column.data.size
        return FINE
    if kind == RECORD:
        for i in range(column.count):
            outcome = _read(plan, plan.children[column.first + i], source, row)
            if outcome != FINE:
                return outcome
        return FINE
    if kind == ARRAY:
        index = plan.children[column.first]
        while True:
            outcome = read_count(source, &number)
            if outcome != FINE:
                return outcome
            if number == 0:
                break
            if number > MOST_ITEMS - column.items:
                return TOO_LARGE
            for i in range(number):
                outcome = _read(plan, index, source, column.items)
                if outcome != FINE:
                    return outcome
                column.items += 1
        (<int32_t *> column.offsets.data)[row + 1] = <int32_t> column.items
        return FINE
    if kind == BOOLEAN:
        if source.at == source.end:
            return CUT
        if source.at[0] > 1:
            return BAD_BOOLEAN
        column.data.data[row >> 3] |= <uint8_t> (source.at[0] << (row & 7))
        source.at += 1
        return FINE
    if column.width > source.end - source.at:  # FLOAT, DOUBLE: Avro and Arrow are both little-endian
        return CUT
    memcpy(column.data.data + row * column.width, source.at, column.width)
    source.at += column.width
    return FINE


cdef class _Memory:
    """What Arrow holds on to; freed with the last array."""

    cdef uint8_t *_data

    def __dealloc__(self):
        free(self._data)

    @staticmethod
    cdef object of(Bytes *bytes, int64_t size):
        """A buffer of Arrow, of which the first `size` bytes are written."""
        cdef _Memory memory = _Memory()
        if bytes.data == NULL:
            return pa.py_buffer(b"")
        memory._data = bytes.data
        bytes.data = NULL
        bytes.size = bytes.capacity = 0
        return pa.foreign_buffer(<uintptr_t> memory._data, size, memory)


cdef class AvroDecoder:
    """Decodes the records of one schema, by its plan."""

    cdef Plan _plan
    cdef int _count
    cdef uint8_t[HEADER] _header
    cdef list _types

    def __cinit__(self, bytes header, root):
        nodes = []
        _number(root, nodes, True)
        if len(header) != HEADER:
            raise ValueError("a header has five bytes")
        memcpy(self._header, <const uint8_t *> header, HEADER)
        self._count = len(nodes)
        self._types = [node.arrow for node, _, _ in nodes]
        self._plan.columns = <Column *> calloc(len(nodes), sizeof(Column))
        self._plan.children = <int *> calloc(len(nodes), sizeof(int))  # each but the root is a child of one
        if self._plan.columns == NULL or self._plan.children == NULL:
            raise MemoryError
        cdef int index, child, used = 0
        cdef Column *column
        for index, (node, below, in_every_row) in enumerate(nodes):
            column = &self._plan.columns[index]
            column.kind = node.kind
            column.read = node.arrow is not None
            column.in_every_row = in_every_row
            column.width = 4 if node.kind in (INT, FLOAT) else 8 if node.kind in (LONG, DOUBLE) else 0
            column.first = used
            column.count = len(below)
            for child in below:
                self._plan.children[used] = child
                used += 1

    def __dealloc__(self):
        if self._plan.columns != NULL:
            self._forget()
        free(self._plan.columns)
        free(self._plan.children)

    @property
    def type(self):
        """Of what `decode` gives."""
        return self._types[0]

    def decode(self, records):
        """Those of the binaries that begin with the header, as structs; the others are passed over.

        Damaged: one is not what the schema says."""
        if records.type != pa.binary():
            raise TypeError(f"binary is wanted, not {records.type}")
        cdef int64_t count = len(records), first = records.offset, row = 0, position = 0
        cdef int outcome
        cdef const uint8_t *valid
        cdef const uint8_t *data
        cdef const int32_t *offsets
        if count == 0:
            return pa.array([], self._types[0])
        buffers = records.buffers()
        valid = <const uint8_t *> _address(buffers[0])
        offsets = <const int32_t *> _address(buffers[1])
        data = <const uint8_t *> _address(buffers[2])
        self._plan.given = count
        try:
            with nogil:
                outcome = self._walk(valid, offsets, data, first, count, &row, &position)
            if outcome == NO_MEMORY:
                raise MemoryError
            if outcome != FINE:
                raise Damaged(position, _REASONS[outcome])
            return self._array(0, row)
        finally:
            self._forget()

    cdef int _walk(
        self, const uint8_t *valid, const int32_t *offsets, const uint8_t *data,
        int64_t first, int64_t count, int64_t *row, int64_t *position,
    ) noexcept nogil:
        cdef Input source
        cdef int outcome
        cdef int64_t i
        for i in range(count):
            if valid != NULL and not valid[(first + i) >> 3] >> ((first + i) & 7) & 1:
                continue
            source.at = data + offsets[first + i]
            source.end = data + offsets[first + i + 1]
            if source.end - source.at < HEADER or memcmp(source.at, self._header, HEADER) != 0:
                continue
            source.at += HEADER
            outcome = _read(&self._plan, 0, &source, row[0])
            if outcome == FINE and source.at != source.end:
                outcome = LEFT_OVER
            if outcome != FINE:
                position[0] = i
                return outcome
            row[0] += 1
        return FINE

    cdef object _array(self, int index, int64_t rows):
        """A column of so many rows, and all below it; its memory goes to Arrow."""
        cdef Column *column = &self._plan.columns[index]
        cdef int64_t nulls
        if rows == 0:
            return pa.array([], self._types[index])
        if column.kind == NULL_:
            return pa.nulls(rows)
        below = [self._plan.children[column.first + i] for i in range(column.count)]
        below = [child for child in below if self._plan.columns[child].read and self._plan.columns[child].kind != NULL_]
        if column.kind == OPTIONAL:
            return self._array(below[0], rows)
        if rows > column.capacity and grow(&self._plan, column, rows) != FINE:
            raise MemoryError
        fill(column, rows)
        nulls = rows - column.values
        buffers = [_Memory.of(&column.valid, (rows + 7) // 8) if nulls else None]
        children = [self._array(child, column.items if column.kind == ARRAY else rows) for child in below]
        if column.kind in (STRING, BYTES, ARRAY):
            buffers.append(_Memory.of(&column.offsets, (rows + 1) * 4))
        if column.kind in (STRING, BYTES):
            buffers.append(_Memory.of(&column.data, column.data.size))
        elif column.kind not in (ARRAY, RECORD, CHOICE):
            buffers.append(_Memory.of(&column.data, rows * column.width if column.width else (rows + 7) // 8))
        return pa.Array.from_buffers(self._types[index], rows, buffers, nulls, 0, children or None)

    cdef void _forget(self) noexcept:
        cdef Column *column
        cdef int index
        for index in range(self._count):
            column = &self._plan.columns[index]
            free(column.valid.data)
            free(column.offsets.data)
            free(column.data.data)
            column.valid = column.offsets = column.data = Bytes(NULL, 0, 0)
            column.rows = column.values = column.capacity = column.items = 0


def _number(node, list nodes, bint in_every_row):
    """Appends the node and all below it: with the numbers of its children, and whether it is in no array."""
    index = len(nodes)
    nodes.append(None)
    below = [_number(child, nodes, in_every_row and node.kind != ARRAY) for child in node.children]
    nodes[index] = node, below, in_every_row
    return index


cdef uintptr_t _address(buffer):
    return 0 if buffer is None else buffer.address
