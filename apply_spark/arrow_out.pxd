# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Arrow's columns while they grow. A value is written at its row; a null is not written at all."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memset

from apply_spark.avro_in cimport FINE, NO_MEMORY

cdef enum:
    NULL_ = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    STRING = 6
    BYTES = 7
    ARRAY = 8
    RECORD = 9
    OPTIONAL = 10
    CHOICE = 11

cdef enum:
    FIRST_BYTES = 1024
    FIRST_ROWS = 64


cdef struct Bytes:
    uint8_t *data
    int64_t size
    int64_t capacity


cdef struct Column:
    int kind
    bint read
    bint in_every_row  # It is in no array: it has as many rows as there are records.
    int first  # Where the indexes of its children begin, in `children`.
    int count
    int width  # Of a value in bytes; 0: not of a fixed width.
    int64_t rows  # How far it is written: every row before has its value, or is null.
    int64_t values
    int64_t capacity
    Bytes valid
    Bytes offsets
    Bytes data
    int64_t items


cdef struct Plan:
    Column *columns
    int *children
    int64_t given  # So many records: as many rows has a column at most, outside of arrays.


cdef inline int reserve(Bytes *bytes, int64_t size) noexcept nogil:
    """Room for so many bytes in all; what was never written is zero."""
    cdef int64_t capacity
    cdef void *data
    if size <= bytes.capacity:
        return FINE
    capacity = max(size, bytes.capacity * 2, <int64_t> FIRST_BYTES)
    data = realloc(bytes.data, capacity)
    if data == NULL:
        return NO_MEMORY
    bytes.data = <uint8_t *> data
    memset(bytes.data + bytes.capacity, 0, capacity - bytes.capacity)
    bytes.capacity = capacity
    return FINE


cdef inline int grow(Plan *plan, Column *column, int64_t rows) noexcept nogil:
    cdef int64_t capacity = max(rows, column.capacity * 2, plan.given if column.in_every_row else <int64_t> FIRST_ROWS)
    cdef int outcome = reserve(&column.valid, (capacity + 7) // 8)
    if outcome == FINE and column.width:
        outcome = reserve(&column.data, capacity * column.width)
    elif outcome == FINE and column.kind == BOOLEAN:
        outcome = reserve(&column.data, (capacity + 7) // 8)
    elif outcome == FINE and column.kind in (STRING, BYTES, ARRAY):
        outcome = reserve(&column.offsets, (capacity + 1) * 4)
    if outcome == FINE:
        column.capacity = capacity
    return outcome


cdef inline void fill(Column *column, int64_t row) noexcept nogil:
    """The rows before `row` that have no value: null, which for an offset means no bytes and no items."""
    cdef int32_t *offsets
    cdef int32_t last
    if column.rows < row:
        if column.kind in (STRING, BYTES, ARRAY):
            offsets = <int32_t *> column.offsets.data
            last = offsets[column.rows]
            while column.rows < row:
                column.rows += 1
                offsets[column.rows] = last
        column.rows = row


cdef inline int begin(Plan *plan, Column *column, int64_t row) noexcept nogil:
    """Room for a value at `row`, which is marked as there."""
    cdef int outcome
    if row >= column.capacity:
        outcome = grow(plan, column, row + 1)
        if outcome != FINE:
            return outcome
    fill(column, row)
    column.valid.data[row >> 3] |= <uint8_t> (1 << (row & 7))
    column.values += 1
    column.rows = row + 1
    return FINE
