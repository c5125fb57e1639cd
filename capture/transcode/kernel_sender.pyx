# cython: language_level=3, cdivision=True
"""An idempotent producer that takes a KernelBatch as it lies in memory: librdkafka's own interface, one call a batch.

confluent-kafka's `produce_batch` wants a dictionary and two objects for each record, and looks seven names up in it. The
library is the one that confluent-kafka brings and has loaded; its headers are not part of that package, so the few
functions and the one structure that are used are declared here, as librdkafka 1.0 and all since promise them.
"""

import ctypes

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t, uintptr_t

from capture.transcode.kernel_batch cimport KernelBatch, Sizes

from confluent_kafka import KafkaError, KafkaException, cimpl

cdef extern from * nogil:
    """
    #ifdef __GLIBC__
    #include <malloc.h>
    static void keep_memory(int largest) {
        mallopt(M_MMAP_THRESHOLD, largest);
        mallopt(M_TRIM_THRESHOLD, 2 * largest);
    }
    #else
    static void keep_memory(int largest) {}
    #endif
    """
    void keep_memory(int largest)

cdef enum:
    LARGEST_KEPT = 32 << 20
    PRODUCER = 0
    COPY_PAYLOAD = 2
    PURGE_ALL = 3
    ERROR_SIZE = 512

ctypedef struct Message:  # rd_kafka_message_t
    int err
    void *topic
    int32_t partition
    void *payload
    size_t size
    void *key
    size_t key_size
    int64_t offset
    void *private

ctypedef void *(*ConfNew)() noexcept nogil
ctypedef int (*ConfSet)(void *conf, const char *name, const char *value, char *error, size_t size) noexcept nogil
ctypedef void (*Destroy)(void *handle) noexcept nogil
ctypedef void *(*New)(int kind, void *conf, char *error, size_t size) noexcept nogil
ctypedef void *(*TopicNew)(void *producer, const char *topic, void *conf) noexcept nogil
ctypedef int (*ProduceBatch)(void *topic, int32_t partition, int flags, Message *messages, int count) noexcept nogil
ctypedef int (*WithTimeout)(void *producer, int milliseconds) noexcept nogil
ctypedef int (*Length)(void *producer) noexcept nogil
ctypedef int (*Purge)(void *producer, int flags) noexcept nogil
ctypedef int (*FatalError)(void *producer, char *error, size_t size) noexcept nogil
ctypedef int (*Metadata)(void *producer, int all_topics, void *topic, void **found, int milliseconds) noexcept nogil

_library = ctypes.CDLL(cimpl.__file__)  # a symbol is looked for in what it is linked with, too


cdef void *_symbol(name) except NULL:
    try:
        return <void *> <uintptr_t> ctypes.cast(getattr(_library, f"rd_kafka_{name}"), ctypes.c_void_p).value
    except AttributeError as missing:
        raise ImportError(f"confluent-kafka's library does not show rd_kafka_{name}") from missing


cdef ConfNew _conf_new = <ConfNew> _symbol("conf_new")
cdef ConfSet _conf_set = <ConfSet> _symbol("conf_set")
cdef Destroy _conf_destroy = <Destroy> _symbol("conf_destroy")
cdef New _new = <New> _symbol("new")
cdef Destroy _destroy = <Destroy> _symbol("destroy")
cdef TopicNew _topic_new = <TopicNew> _symbol("topic_new")
cdef Destroy _topic_destroy = <Destroy> _symbol("topic_destroy")
cdef ProduceBatch _produce_batch = <ProduceBatch> _symbol("produce_batch")
cdef WithTimeout _poll = <WithTimeout> _symbol("poll")
cdef WithTimeout _flush = <WithTimeout> _symbol("flush")
cdef Length _outq_len = <Length> _symbol("outq_len")
cdef Purge _purge = <Purge> _symbol("purge")
cdef FatalError _fatal_error = <FatalError> _symbol("fatal_error")
cdef Metadata _metadata = <Metadata> _symbol("metadata")
cdef Destroy _metadata_destroy = <Destroy> _symbol("metadata_destroy")


@cython.no_gc  # it can be in no cycle; Python would take `_topics` away before `__dealloc__`
cdef class KernelSender:
    """The same interface as the reference Sender. Takes batches of the kernel only."""

    cdef void *_producer
    cdef dict _topics

    def __cinit__(self, settings):
        cdef char error[ERROR_SIZE]
        cdef void *conf = _conf_new()
        # Batches of librdkafka come and go. Left to itself malloc gives each back to the kernel, which clears its pages.
        keep_memory(LARGEST_KEPT)
        self._topics = {}
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if _conf_set(conf, name.encode(), text.encode(), error, ERROR_SIZE) != 0:
                _conf_destroy(conf)
                raise _exception(KafkaError._INVALID_ARG, error)
        self._producer = _new(PRODUCER, conf, error, ERROR_SIZE)
        if self._producer == NULL:
            _conf_destroy(conf)
            raise _exception(KafkaError._FAIL, error)

    def __dealloc__(self):
        if self._producer != NULL:
            for topic in self._topics.values():
                _topic_destroy(<void *> <uintptr_t> topic)
            with nogil:
                _destroy(self._producer)

    def __len__(self):
        """Records that Kafka has not confirmed."""
        return _outq_len(self._producer)

    def meet(self, double seconds):
        """Asks the broker for its topics, whatever it answers."""
        cdef void *found = NULL
        cdef int milliseconds = <int> (seconds * 1000)
        with nogil:
            if _metadata(self._producer, 1, NULL, &found, milliseconds) == 0:
                _metadata_destroy(found)

    def send(self, topic, KernelBatch batch not None):
        cdef Py_ssize_t i, count = batch.count
        cdef unsigned char *at = batch.bytes.data
        cdef Sizes *sizes
        cdef void *handle = self._topic(topic)
        cdef int taken
        cdef Message *messages = <Message *> PyMem_Calloc(max(count, <Py_ssize_t> 1), sizeof(Message))
        if messages == NULL:
            raise MemoryError
        try:
            with nogil:
                for i in range(count):
                    sizes = &batch.sizes[i]
                    messages[i].key, messages[i].key_size = NULL, sizes.key
                    if sizes.key:
                        messages[i].key = at
                    at += sizes.key
                    messages[i].payload, messages[i].size = at, sizes.value
                    at += sizes.value
                taken = _produce_batch(handle, 0, COPY_PAYLOAD, messages, <int> count)
            if taken < count:
                for i in range(count):
                    if messages[i].err:
                        raise KafkaException(KafkaError(messages[i].err))
        finally:
            PyMem_Free(messages)

    def poll(self):
        with nogil:
            _poll(self._producer, 0)

    def flush(self, double seconds):
        """Waits at most so long until Kafka has confirmed all."""
        cdef int milliseconds = <int> (seconds * 1000)
        with nogil:
            _flush(self._producer, milliseconds)

    def purge(self):
        with nogil:
            _purge(self._producer, PURGE_ALL)

    @property
    def failure(self):
        """What ended the producer, if something did."""
        cdef char error[ERROR_SIZE]
        cdef int code = _fatal_error(self._producer, error, ERROR_SIZE)
        return KafkaError(code, error.decode(errors="replace"), fatal=True) if code else None

    cdef void *_topic(self, topic) except NULL:
        cdef void *handle
        known = self._topics.get(topic)
        if known is not None:
            return <void *> <uintptr_t> known
        handle = _topic_new(self._producer, topic.encode(), NULL)
        if handle == NULL:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"{topic} cannot be the name of a topic"))
        self._topics[topic] = <uintptr_t> handle
        return handle


cdef _exception(code, char *text):
    return KafkaException(KafkaError(code, text.decode(errors="replace")))
