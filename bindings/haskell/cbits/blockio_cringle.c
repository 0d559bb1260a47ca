/* Starts batches, and wakes the green thread that waits for one.
 *
 * The callback runs on a thread of Cringle and fills an MVar by `hs_try_putmvar`, the one function of
 * GHC's run-time system that any thread may call and that does not wait. A lane outlives its batches:
 * the garbage collector finalizes it when no thread can submit, and at the end of the program. The end
 * of the program is the one case in which batches are under way then: the finalizer cancels them and
 * waits for the kernel, because their buffers lie in the heap that is freed next. (Until then stable
 * pointers keep them: the run-time system collects garbage before it runs the finalizers.) */

#include "blockio_cringle.h"

#include <HsFFI.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct lane {
    cringle_io io;
    pid_t owner;
    pthread_mutex_t lock;
    /* Under the lock: the batches under way, and whether the MVars are gone. */
    struct batch *under_way;
    int finalized;
};

/* The offsets by which Layout.hs stores. */
_Static_assert(offsetof(struct batch, ops) == 48, "ops");
_Static_assert(sizeof(struct cringle_op) == 64, "cringle_op");
_Static_assert(offsetof(struct cringle_op, kind) == 0, "kind");
_Static_assert(offsetof(struct cringle_op, fd) == 4, "fd");
_Static_assert(offsetof(struct cringle_op, buf) == 8, "buf");
_Static_assert(offsetof(struct cringle_op, len) == 16, "len");
_Static_assert(offsetof(struct cringle_op, offset) == 24, "offset");
_Static_assert(CRINGLE_MAX_OPS == 1048576, "maxOps");
_Static_assert(CRINGLE_READ == 1 && CRINGLE_WRITE == 2, "kinds");

static void insert(struct lane *lane, struct batch *batch) {
    pthread_mutex_lock(&lane->lock);
    batch->before = NULL;
    batch->after = lane->under_way;
    if (batch->after)
        batch->after->before = batch;
    lane->under_way = batch;
    pthread_mutex_unlock(&lane->lock);
}

/* The caller holds the lock. */
static void remove_locked(struct lane *lane, struct batch *batch) {
    if (batch->after)
        batch->after->before = batch->before;
    if (batch->before)
        batch->before->after = batch->after;
    else
        lane->under_way = batch->after;
}

/* The run-time system keeps a record of each thread that calls it, until the thread says that it ends. */
static pthread_key_t at_thread_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread int is_known;

static void thread_exits(void *unused) {
    (void)unused;
    hs_thread_done();
}

static void make_key(void) {
    pthread_key_create(&at_thread_exit, thread_exits);
}

static void completed(void *arg, int failed) {
    (void)failed; /* The results say it. */
    struct batch *batch = arg;
    struct lane *lane = batch->lane;
    void *mvar = batch->mvar;
    int capability = (int)batch->capability;
    pthread_mutex_lock(&lane->lock);
    remove_locked(lane, batch);
    int finalized = lane->finalized;
    pthread_mutex_unlock(&lane->lock);
    if (finalized)
        return;
    if (!is_known) {
        is_known = 1;
        pthread_setspecific(at_thread_exit, &is_known);
    }
    /* Once the MVar is full, the batch may be garbage. */
    hs_try_putmvar(capability, mvar);
}

int blockio_open(uint32_t batch_limit, uint32_t in_flight_limit, struct lane **out, char *text,
                 size_t size) {
    struct lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return -ENOMEM;
    struct cringle_params params = {
        .size = sizeof params, .batch_limit = batch_limit, .in_flight_limit = in_flight_limit};
    int error = cringle_open(&params, &lane->io);
    if (error < 0) {
        cringle_last_error(text, size);
        free(lane);
        return error;
    }
    pthread_once(&once, make_key);
    pthread_mutex_init(&lane->lock, NULL);
    lane->owner = getpid();
    *out = lane;
    return 0;
}

int blockio_submit(struct lane *lane, struct batch *batch, int64_t count, size_t size, int64_t *results,
                   int64_t capability, void *mvar) {
    if (lane->owner != getpid()) {
        /* The lock is useless in a forked child. */
        cringle_strerror(-ESRCH, (char *)batch->ops, size);
        return -ESRCH;
    }
    batch->lane = lane;
    batch->mvar = mvar;
    batch->capability = capability;
    insert(lane, batch);
    int error = cringle_submit_cb(lane->io, batch->ops, (size_t)count, results, completed, batch,
                                  &batch->submission);
    if (error < 0) {
        pthread_mutex_lock(&lane->lock);
        remove_locked(lane, batch);
        pthread_mutex_unlock(&lane->lock);
        cringle_last_error((char *)batch->ops, size);
    }
    return error;
}

void blockio_cancel(struct batch *batch) {
    /* It fails if the batch has ended. */
    (void)cringle_cancel(batch->lane->io, batch->submission);
}

int blockio_close(struct lane *lane) {
    return cringle_close(lane->io);
}

int blockio_driver(struct lane *lane, char *text, size_t size) {
    int driver = cringle_driver(lane->io, text, size);
    if (driver < 0)
        cringle_last_error(text, size);
    return driver;
}

void blockio_finalize(struct lane *lane) {
    /* A forked child has none of the threads, and a thread it lacks may hold the lock. */
    if (lane->owner == getpid()) {
        pthread_mutex_lock(&lane->lock);
        lane->finalized = 1;
        for (struct batch *batch = lane->under_way; batch; batch = batch->after)
            blockio_cancel(batch);
        pthread_mutex_unlock(&lane->lock);
        cringle_close(lane->io);
    }
    free(lane);
}
