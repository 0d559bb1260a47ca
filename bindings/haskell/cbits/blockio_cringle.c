/* Starts batches, and wakes the green thread that waits for one.
 *
 * The callback runs on a thread of Cringle and fills an MVar by `hs_try_putmvar`, the one function of
 * GHC's run-time system that any thread may call and that does not wait. A lane outlives its batches:
 * the garbage collector finalizes it when no thread can submit, and at the end of the program. A
 * finalizer of the program can still hold the context and use it: the collector finalizes all that
 * has become unreachable at the same time. So the memory of a lane is never freed: another context
 * uses it again. Each call passes the number of its engine, which is never used again.
 *
 * At the end of the program, and only then, the finalizer can find batches under way. It cancels them
 * and waits for the kernel, because their buffers lie in the heap that is freed next. (Until then
 * stable pointers keep them: the run-time system collects garbage before it runs the finalizers.) */

#include "blockio_cringle.h"

#include <HsFFI.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct lane {
    pid_t owner;
    pthread_mutex_t lock;
    /* Under the lock: the engine that accepts batches, or 0; the batches under way; and whether the
     * MVars are gone. */
    cringle_io accepts;
    struct batch *under_way;
    int finalized;
    /* The engine, for the finalizer. */
    cringle_io io;
    struct lane *next_spare;
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

/* The lanes that are finalized. A child of a fork forgets them: a thread it lacks may hold the lock. */
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static struct lane *spare;

static void forget_in_child(void) {
    pthread_mutex_init(&spare_lock, NULL);
    spare = NULL;
}

static struct lane *new_lane(void) {
    pthread_mutex_lock(&spare_lock);
    struct lane *lane = spare;
    if (lane)
        spare = lane->next_spare;
    pthread_mutex_unlock(&spare_lock);
    if (!lane) {
        lane = calloc(1, sizeof *lane);
        if (lane)
            pthread_mutex_init(&lane->lock, NULL);
    }
    return lane;
}

static void recycle(struct lane *lane) {
    pthread_mutex_lock(&spare_lock);
    lane->next_spare = spare;
    spare = lane;
    pthread_mutex_unlock(&spare_lock);
}

/* Returns whether the lane accepts batches for this engine. */
static int insert(struct lane *lane, cringle_io io, struct batch *batch) {
    pthread_mutex_lock(&lane->lock);
    int accepted = lane->accepts == io;
    if (accepted) {
        batch->before = NULL;
        batch->after = lane->under_way;
        if (batch->after)
            batch->after->before = batch;
        lane->under_way = batch;
    }
    pthread_mutex_unlock(&lane->lock);
    return accepted;
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

static void prepare(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
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

int blockio_open(uint32_t batch_limit, uint32_t in_flight_limit, struct lane **out, cringle_io *io,
                 char *text, size_t size) {
    pthread_once(&once, prepare);
    struct lane *lane = new_lane();
    if (!lane)
        return -ENOMEM;
    struct cringle_params params = {
        .size = sizeof params, .batch_limit = batch_limit, .in_flight_limit = in_flight_limit};
    int error = cringle_open(&params, &lane->io);
    if (error < 0) {
        cringle_last_error(text, size);
        recycle(lane);
        return error;
    }
    lane->owner = getpid();
    pthread_mutex_lock(&lane->lock);
    lane->accepts = lane->io;
    lane->finalized = 0;
    pthread_mutex_unlock(&lane->lock);
    *out = lane;
    *io = lane->io;
    return 0;
}

static int refuse(int error, struct batch *batch, size_t size) {
    cringle_strerror(error, (char *)batch->ops, size);
    return error;
}

int blockio_submit(struct lane *lane, cringle_io io, struct batch *batch, int64_t count, size_t size,
                   int64_t *results, int64_t capability, void *mvar) {
    /* The lock is useless in a forked child. */
    if (lane->owner != getpid())
        return refuse(-ESRCH, batch, size);
    batch->lane = lane;
    batch->mvar = mvar;
    batch->capability = capability;
    if (!insert(lane, io, batch))
        return refuse(-EBADF, batch, size);
    int error = cringle_submit_cb(io, batch->ops, (size_t)count, results, completed, batch,
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

void blockio_refuse(struct lane *lane, cringle_io io) {
    if (lane->owner != getpid())
        return;
    pthread_mutex_lock(&lane->lock);
    if (lane->accepts == io)
        lane->accepts = 0;
    pthread_mutex_unlock(&lane->lock);
}

int blockio_driver(cringle_io io, char *text, size_t size) {
    int driver = cringle_driver(io, text, size);
    if (driver < 0)
        cringle_last_error(text, size);
    return driver;
}

void blockio_finalize(struct lane *lane) {
    /* A forked child has none of the threads, and a thread it lacks may hold the lock. */
    if (lane->owner != getpid())
        return;
    pthread_mutex_lock(&lane->lock);
    lane->accepts = 0;
    lane->finalized = 1;
    for (struct batch *batch = lane->under_way; batch; batch = batch->after)
        blockio_cancel(batch);
    pthread_mutex_unlock(&lane->lock);
    cringle_close(lane->io);
    recycle(lane);
}
