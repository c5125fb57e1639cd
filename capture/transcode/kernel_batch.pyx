# cython: language_level=3, cdivision=True
"""Records on their way to one topic, in one piece of memory: no Python object for each."""

from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc

from capture.transcode.avro_out cimport Buffer, put_bytes, reserve

cdef enum:
    LARGEST_SPARE = 4 << 20

# The memory of the last batch that is gone, for the next one: what malloc gives back to the kernel and takes again is
# cleared page by page, which is dear on a virtual machine. There for whoever holds the interpreter's lock.
cdef Buffer _spare_bytes
cdef Sizes *_spare_sizes = NULL
cdef Py_ssize_t _spare_room = 0


cdef class KernelBatch:
    """The same interface as the reference Batch. Key and value of each record follow each other."""

    def __cinit__(self):
        global _spare_sizes, _spare_room
        self.bytes, self.sizes, self.room = _spare_bytes, _spare_sizes, _spare_room
        _spare_bytes.data, _spare_bytes.capacity, _spare_sizes, _spare_room = NULL, 0, NULL, 0

    def __dealloc__(self):
        global _spare_bytes, _spare_sizes, _spare_room
        if _spare_room == 0 and self.bytes.capacity <= LARGEST_SPARE:
            _spare_bytes, _spare_sizes, _spare_room = self.bytes, self.sizes, self.room
            _spare_bytes.size = 0
        else:
            PyMem_Free(self.bytes.data)
            PyMem_Free(self.sizes)

    def __len__(self):
        return self.count

    @property
    def dicts(self):
        """As produce_batch takes them."""
        cdef const char *at = <const char *> self.bytes.data
        cdef Sizes *sizes
        cdef Py_ssize_t i
        found = []
        for i in range(self.count):
            sizes = &self.sizes[i]
            key = PyBytes_FromStringAndSize(at, sizes.key) if sizes.key else None
            found.append({"key": key, "value": PyBytes_FromStringAndSize(at + sizes.key, sizes.value)})
            at += sizes.key + sizes.value
        return found

    def add(self, bytes key, bytes value not None):
        self.begin(0 if key is None else PyBytes_GET_SIZE(key), PyBytes_GET_SIZE(value))
        if key is not None:
            put_bytes(&self.bytes, key)
        put_bytes(&self.bytes, value)

    cdef int begin(self, Py_ssize_t key, Py_ssize_t value) except -1:
        """Counts a record of these sizes and makes room for it; the caller puts that many bytes, and cannot fail."""
        cdef Py_ssize_t room
        cdef void *sizes
        reserve(&self.bytes, key + value)
        if self.count == self.room:
            room = max(self.room * 2, <Py_ssize_t> 64)
            sizes = PyMem_Realloc(self.sizes, room * sizeof(Sizes))
            if sizes == NULL:
                raise MemoryError
            self.sizes, self.room = <Sizes *> sizes, room
        self.sizes[self.count].key, self.sizes[self.count].value = key, value
        self.count += 1
        self.size += value
        return 0
