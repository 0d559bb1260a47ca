/* The border between OCaml and Cringle's C library.
 *
 * A request is a batch under way: memory of malloc with the operations and the results. It is a root
 * of the collector for its operations, and so for their buffers, until `finish` releases it in OCaml's
 * runtime, or, if its queue is dropped, a later call of the library does. The callback runs on a thread
 * of Cringle, which is no thread of OCaml: it touches only the request and the queue, never a value. */

#define CAML_NAME_SPACE
#define CAML_INTERNALS /* caml_enter_blocking_section_no_pending */
#include <caml/alloc.h>
#include <caml/bigarray.h>
#include <caml/callback.h>
#include <caml/custom.h>
#include <caml/fail.h>
#include <caml/memory.h>
#include <caml/mlvalues.h>
#include <caml/signals.h>
#include <caml/unixsupport.h>
#include <caml/version.h>

#include <cringle.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#if OCAML_VERSION >= 50000
#define unix_error_of_code caml_unix_error_of_code
#endif

/* ---- Errors ---- */

/* Raises Cringle_error with the words of the last failed call of this thread. */
static void fail(int error, const char *text) {
    CAMLparam0();
    CAMLlocal3(exception, unix_error, words);
    const value *tag = caml_named_value("cringle.error");
    unix_error = unix_error_of_code(-error);
    words = caml_copy_string(text);
    exception = caml_alloc(3, 0);
    Store_field(exception, 0, *tag);
    Store_field(exception, 1, unix_error);
    Store_field(exception, 2, words);
    caml_raise(exception);
    CAMLnoreturn;
}

static void fail_with_words(int error) {
    char text[1024] = "";
    cringle_last_error(text, sizeof text);
    fail(error, text);
}

/* The collector does not see what a value holds in the kernel and in threads. After this
 * number of engines, or of queues, it collects the young ones, and proceeds with the old ones. */
enum { VALUES_PER_COLLECTION = 16 };

/* ---- Engines ---- */

#define Io_val(v) (*(cringle_io *)Data_custom_val(v))

static void release_orphans(void);

/* Runs when no request and no value refers to the engine, so the close waits only for its threads. */
static void io_finalize(value io) {
    cringle_close(Io_val(io));
}

static struct custom_operations io_operations = {
    "cringle.io",
    io_finalize,
    custom_compare_default,
    custom_hash_default,
    custom_serialize_default,
    custom_deserialize_default,
    custom_compare_ext_default,
    custom_fixed_length_default,
};

static uint32_t limit(value number, const char *words) {
    if (Long_val(number) < 1 || Long_val(number) > UINT16_MAX)
        caml_invalid_argument(words);
    return (uint32_t)Long_val(number);
}

value cringle_ml_create(value workers, value batch_limit, value in_flight_limit) {
    CAMLparam3(workers, batch_limit, in_flight_limit);
    CAMLlocal1(io);
    struct cringle_params params = {
        .size = sizeof params,
        .workers = limit(workers, "Cringle.create: workers is not between 1 and 65535"),
        .batch_limit = limit(batch_limit, "Cringle.create: batch_limit is not between 1 and 65535"),
        .in_flight_limit =
            limit(in_flight_limit, "Cringle.create: in_flight_limit is not between 1 and 65535"),
    };
    io = caml_alloc_custom(&io_operations, sizeof(cringle_io), 1, VALUES_PER_COLLECTION);
    Io_val(io) = 0; /* No engine: the finalizer's close does nothing. */
    cringle_io number;
    caml_enter_blocking_section();
    int error = cringle_open(&params, &number);
    char text[1024] = "";
    if (error < 0)
        cringle_last_error(text, sizeof text);
    caml_leave_blocking_section();
    if (error < 0)
        fail(error, text);
    Io_val(io) = number;
    CAMLreturn(io);
}

value cringle_ml_close(value io) {
    CAMLparam1(io);
    cringle_io number = Io_val(io);
    caml_enter_blocking_section();
    cringle_close(number); /* It fails only if the engine is closed already. */
    caml_leave_blocking_section();
    release_orphans();
    CAMLreturn(Val_unit);
}

value cringle_ml_driver(value io) {
    CAMLparam1(io);
    char text[1024] = "";
    int driver = cringle_driver(Io_val(io), text, sizeof text);
    if (driver < 0)
        fail_with_words(driver);
    CAMLreturn(caml_copy_string(text));
}

value cringle_ml_address(value buffer) {
    return Val_long((intnat)Caml_ba_data_val(buffer));
}

/* ---- Requests ---- */

struct queue;

struct request {
    cringle_io io;
    cringle_submission submission;
    /* A root: a tuple of the engine, the operations, and the key of the continuation. */
    value keep;
    /* Posted at the end, unless the request belongs to a queue; and whether OCaml has waited for it. */
    sem_t ended;
    int waited;
    struct queue *queue;
    struct request *next;
    size_t count;
    int64_t *results;
    struct cringle_op ops[];
};

/* Complete requests. Each request under way holds a reference, and so does OCaml's value. A forked child
 * shares the eventfd with its parent, lacks the threads that complete its copy of the requests, and may
 * find the lock held by one of them: so it must not touch the queue. */
struct queue {
    pid_t owner;
    int dropped;
    pthread_mutex_t lock;
    struct request *first, **last;
    int eventfd;
    atomic_size_t references;
};

/* An aligned pointer as an OCaml integer. */
static value of_request(struct request *request) {
    return (value)request | 1;
}

static struct request *to_request(value v) {
    return (struct request *)(v & ~(value)1);
}

/* Complete requests whose queue was dropped. Only a thread of OCaml may release their roots. */
static _Atomic(struct request *) orphans;

static void queue_release(struct queue *queue) {
    if (atomic_fetch_sub(&queue->references, 1) == 1) {
        close(queue->eventfd);
        pthread_mutex_destroy(&queue->lock);
        free(queue);
    }
}

static void completed(void *arg, int failed) {
    (void)failed; /* The results say it. */
    struct request *request = arg;
    struct queue *queue = request->queue;
    if (!queue) {
        sem_post(&request->ended);
        return;
    }
    pthread_mutex_lock(&queue->lock);
    if (queue->dropped) {
        request->next = atomic_load(&orphans);
        while (!atomic_compare_exchange_weak(&orphans, &request->next, request)) {
        }
    } else {
        int was_empty = queue->first == NULL;
        *queue->last = request;
        queue->last = &request->next;
        /* Under the lock: the descriptor is readable if and only if a request is complete. */
        if (was_empty)
            eventfd_write(queue->eventfd, 1);
    }
    pthread_mutex_unlock(&queue->lock);
    queue_release(queue);
}

/* The fields of Read and Write, in the order of cringle.ml. */
enum { FD, OFFSET, BUF, POS, LEN };

/* Stores the operation, or returns 0 if its range is outside of its buffer. */
static int store(value v, struct cringle_op *op) {
    struct caml_ba_array *buf = Caml_ba_array_val(Field(v, BUF));
    intnat pos = Long_val(Field(v, POS)), len = Long_val(Field(v, LEN));
    if (pos < 0 || len < 0 || pos > buf->dim[0] || len > buf->dim[0] - pos)
        return 0;
    *op = (struct cringle_op){
        .kind = Tag_val(v) == 0 ? CRINGLE_READ : CRINGLE_WRITE,
        .fd = (int32_t)Long_val(Field(v, FD)),
        .buf = (char *)buf->data + pos,
        .len = (uint64_t)len,
        .offset = (uint64_t)Long_val(Field(v, OFFSET)),
    };
    return 1;
}

static void release(struct request *request) {
    caml_remove_generational_global_root(&request->keep);
    sem_destroy(&request->ended);
    free(request);
}

static void release_all(struct request *request) {
    while (request) {
        struct request *next = request->next;
        release(request);
        request = next;
    }
}

static void release_orphans(void) {
    if (atomic_load(&orphans))
        release_all(atomic_exchange(&orphans, NULL));
}

static struct request *start(value io, value ops, value k, struct queue *queue) {
    CAMLparam3(io, ops, k);
    CAMLlocal1(keep);
    release_orphans();
    keep = caml_alloc_small(3, 0);
    Field(keep, 0) = io;
    Field(keep, 1) = ops;
    Field(keep, 2) = k;
    size_t count = Wosize_val(ops);
    struct request *request =
        malloc(sizeof *request + count * (sizeof(struct cringle_op) + sizeof(int64_t)));
    if (!request)
        caml_raise_out_of_memory();
    for (size_t i = 0; i < count; i++)
        if (!store(Field(ops, i), &request->ops[i])) {
            free(request);
            caml_invalid_argument("Cringle: an operation's range is outside of its buffer");
        }
    request->io = Io_val(io);
    request->keep = keep;
    request->waited = 0;
    request->queue = queue;
    request->next = NULL;
    request->count = count;
    request->results = (int64_t *)&request->ops[count];
    sem_init(&request->ended, 0, 0);
    caml_register_generational_global_root(&request->keep);
    if (queue)
        atomic_fetch_add(&queue->references, 1);
    int error = cringle_submit_cb(request->io, request->ops, count, request->results, completed,
                                  request, &request->submission);
    if (error < 0) {
        release(request);
        if (queue)
            queue_release(queue);
        fail_with_words(error);
    }
    CAMLreturnT(struct request *, request);
}

/* Releases the request and returns its results. */
static value finish(struct request *request) {
    CAMLparam0();
    CAMLlocal3(results, result, error);
    results = caml_alloc(request->count, 0);
    for (size_t i = 0; i < request->count; i++) {
        int64_t n = request->results[i];
        if (n >= 0) {
            result = caml_alloc_small(1, 0);
            Field(result, 0) = Val_long(n);
        } else {
            error = unix_error_of_code((int)-n);
            result = caml_alloc_small(1, 1);
            Field(result, 0) = error;
        }
        Store_field(results, i, result);
    }
    release(request);
    CAMLreturn(results);
}

value cringle_ml_start(value io, value ops) {
    return of_request(start(io, ops, Val_unit, NULL));
}

value cringle_ml_await(value v) {
    struct request *request = to_request(v);
    request->waited = sem_trywait(&request->ended) == 0;
    while (!request->waited) {
        caml_enter_blocking_section();
        request->waited = sem_wait(&request->ended) == 0;
        caml_leave_blocking_section();
        /* After an interruption by a signal, the next entry runs its handler, which can raise. */
    }
    return Val_unit;
}

value cringle_ml_cancel(value v) {
    struct request *request = to_request(v);
    if (request->waited)
        return Val_unit; /* A handler has raised between the end and the return to OCaml. */
    cringle_cancel(request->io, request->submission);
    caml_enter_blocking_section_no_pending();
    while (sem_wait(&request->ended) != 0) {
    }
    caml_leave_blocking_section();
    return Val_unit;
}

value cringle_ml_finish(value v) {
    return finish(to_request(v));
}

/* ---- Queues ---- */

#define Queue_val(v) (*(struct queue **)Data_custom_val(v))

static struct custom_operations queue_operations = {
    "cringle.queue",
    custom_finalize_default, /* OCaml calls `drop`: a finalizer of C may release no root. */
    custom_compare_default,
    custom_hash_default,
    custom_serialize_default,
    custom_deserialize_default,
    custom_compare_ext_default,
    custom_fixed_length_default,
};

value cringle_ml_queue(value unit) {
    CAMLparam1(unit);
    CAMLlocal1(v);
    struct queue *queue = malloc(sizeof *queue);
    if (!queue)
        caml_raise_out_of_memory();
    queue->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->eventfd < 0) {
        int error = -errno;
        free(queue);
        fail(error, "cannot create an eventfd; raise RLIMIT_NOFILE (ulimit -n)");
    }
    queue->owner = getpid();
    pthread_mutex_init(&queue->lock, NULL);
    queue->dropped = 0;
    queue->first = NULL;
    queue->last = &queue->first;
    atomic_init(&queue->references, 1);
    v = caml_alloc_custom(&queue_operations, sizeof queue, 1, VALUES_PER_COLLECTION);
    Queue_val(v) = queue;
    CAMLreturn(v);
}

value cringle_ml_start_on(value queue, value io, value ops, value key) {
    CAMLparam4(queue, io, ops, key);
    start(io, ops, key, Queue_val(queue));
    CAMLreturn(Val_unit);
}

/* An aligned pointer as an OCaml integer. It does not keep the queue's value reachable. */
value cringle_ml_pointer(value v) {
    return (value)Queue_val(v) | 1;
}

/* Releases the queue, and its complete requests, now and later: its value is unreachable. */
value cringle_ml_drop(value pointer) {
    struct queue *queue = (struct queue *)(pointer & ~(value)1);
    if (queue->owner == getpid()) {
        pthread_mutex_lock(&queue->lock);
        struct request *complete = queue->first;
        queue->dropped = 1;
        queue->first = NULL;
        pthread_mutex_unlock(&queue->lock);
        release_all(complete);
    }
    queue_release(queue);
    return Val_unit;
}

static struct request *take(struct queue *queue) {
    pthread_mutex_lock(&queue->lock);
    struct request *request = queue->first;
    if (request) {
        queue->first = request->next;
        if (!queue->first) {
            queue->last = &queue->first;
            eventfd_t count;
            eventfd_read(queue->eventfd, &count);
        }
    }
    pthread_mutex_unlock(&queue->lock);
    return request;
}

value cringle_ml_next(value v, value wait) {
    CAMLparam2(v, wait);
    CAMLlocal3(results, pair, key);
    struct queue *queue = Queue_val(v);
    struct request *request;
    if (queue->owner != getpid())
        fail(-ESRCH, "the queue was created before `fork`, and its batches end in the parent: open "
                     "another engine and queue in the child");
    while (!(request = take(queue)) && Bool_val(wait)) {
        struct pollfd readable = {.fd = queue->eventfd, .events = POLLIN};
        /* The entry runs the handlers of signals, which can raise; one interrupts `poll`. */
        caml_enter_blocking_section();
        poll(&readable, 1, -1);
        caml_leave_blocking_section();
    }
    if (!request)
        CAMLreturn(Val_int(0)); /* None */
    key = Field(request->keep, 2);
    results = finish(request);
    pair = caml_alloc_small(2, 0);
    Field(pair, 0) = key;
    Field(pair, 1) = results;
    value some = caml_alloc_small(1, 0);
    Field(some, 0) = pair;
    CAMLreturn(some);
}

value cringle_ml_descriptor(value v) {
    return Val_int(Queue_val(v)->eventfd);
}
