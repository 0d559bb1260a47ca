/* Opening, closing, forking and unloading. */
#include "check.h"

static unsigned char memory[PAGE];

static void second_close_is_refused(void)
{
    cringle_io io = opened(NULL);
    CHECK_EQ(cringle_close(io), 0);
    CHECK_EQ(cringle_close(io), -EBADF);
    check_last_error("closed");
}

struct closing {
    cringle_io io;
    atomic_int closed, refused;
};

static void *close_it(void *arg)
{
    struct closing *closing = arg;
    switch (cringle_close(closing->io)) {
    case 0: atomic_fetch_add(&closing->closed, 1); break;
    case -EBADF: atomic_fetch_add(&closing->refused, 1); break;
    default: CHECK(!"another result");
    }
    return NULL;
}

static void one_of_several_closers_closes(void)
{
    enum { THREADS = 8 };
    struct closing closing = { .io = opened(NULL) };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, close_it, &closing), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(closing.closed, 1);
    CHECK_EQ(closing.refused, THREADS - 1);
}

struct in_callback {
    cringle_io io, other;
    int close, submit, other_close;
    struct called called;
};

static void misbehave(void *arg, int failed)
{
    struct in_callback *in = arg;
    int64_t result;
    struct cringle_op one = op(CRINGLE_READ, 0, memory, 1, 0);
    in->close = cringle_close(in->io);
    in->other_close = cringle_close(in->other);
    in->submit = cringle_submit(in->io, &one, 1, &result);
    count_call(&in->called, failed);
}

static void close_and_submit_in_a_callback_are_refused(void)
{
    struct in_callback in = { .io = opened(NULL), .other = opened(NULL) };
    struct cringle_op one = op(CRINGLE_READ, numbered_file(O_RDONLY), memory, PAGE, 0);
    int64_t result;
    sem_init(&in.called.posted, 0, 0);
    CHECK_EQ(cringle_submit_cb(in.io, &one, 1, &result, misbehave, &in, NULL), 0);
    wait_for_post(&in.called.posted);
    CHECK_EQ(in.close, -EDEADLK);
    CHECK_EQ(in.other_close, -EDEADLK);
    CHECK_EQ(in.submit, -EDEADLK);
    /* The refused close has closed nothing. */
    CHECK_EQ(result_of(in.io, one), PAGE);
    CHECK_EQ(cringle_close(in.io), 0);
    CHECK_EQ(cringle_close(in.other), 0);
}

struct slow {
    sem_t entered, leave;
    atomic_int done;
};

static void wait_in_callback(void *arg, int failed)
{
    struct slow *slow = arg;
    CHECK_EQ(failed, 0);
    sem_post(&slow->entered);
    wait_for_post(&slow->leave);
    atomic_store(&slow->done, 1);
}

struct closer {
    cringle_io io;
    atomic_int result;
};

static void *close_in_thread(void *arg)
{
    struct closer *closer = arg;
    atomic_store(&closer->result, cringle_close(closer->io));
    return NULL;
}

static void close_waits_for_callbacks(void)
{
    struct slow slow = { .done = 0 };
    struct closer closer = { opened(NULL), 1 };
    struct cringle_op one = op(CRINGLE_READ, numbered_file(O_RDONLY), memory, PAGE, 0);
    struct cringle_stats stats = { .size = sizeof stats };
    int64_t result;
    pthread_t thread;
    sem_init(&slow.entered, 0, 0);
    sem_init(&slow.leave, 0, 0);
    CHECK_EQ(cringle_submit_cb(closer.io, &one, 1, &result, wait_in_callback, &slow, NULL), 0);
    wait_for_post(&slow.entered);
    CHECK_EQ(pthread_create(&thread, NULL, close_in_thread, &closer), 0);
    /* The close has begun when a submission is refused. An empty one has no memory to keep. */
    static struct called ignored;
    sem_init(&ignored.posted, 0, 0);
    while (cringle_submit_cb(closer.io, NULL, 0, NULL, count_call, &ignored, NULL) == 0)
        sched_yield();
    CHECK_EQ(cringle_submit(closer.io, &one, 1, &result), -EBADF);
    /* The counters can be read until it is closed. */
    CHECK_EQ(cringle_get_stats(closer.io, &stats), 0);
    CHECK_EQ(atomic_load(&closer.result), 1);
    sem_post(&slow.leave);
    pthread_join(thread, NULL);
    CHECK_EQ(closer.result, 0);
    CHECK_EQ(cringle_get_stats(closer.io, &stats), -EBADF);
    CHECK_EQ(slow.done, 1);
}

/* The status with which a child ends that runs `f`. */
static int in_child(void (*f)(cringle_io), cringle_io io)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        f(io);
        exit(0);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    return status;
}

static void use_after_fork(cringle_io io)
{
    struct cringle_op one = op(CRINGLE_READ, numbered_file(O_RDONLY), memory, PAGE, PAGE);
    struct cringle_stats stats = { .size = sizeof stats };
    int64_t result;
    CHECK_EQ(cringle_submit(io, &one, 1, &result), -ESRCH);
    check_last_error("before `fork`");
    CHECK_EQ(cringle_submit_cb(io, &one, 1, &result, count_call, NULL, NULL), -ESRCH);
    CHECK_EQ(cringle_get_stats(io, &stats), -ESRCH);
    CHECK_EQ(cringle_cancel(io, 1), -ESRCH);
    struct cringle_completion out;
    cringle_queue queue = 1 << 16;
    CHECK_EQ(cringle_queue_submit(io, queue, &one, 1, NULL), -ESRCH);
    CHECK_EQ(cringle_queue_poll(io, queue, &out, 1, -1), -ESRCH);
    CHECK_EQ(cringle_queue_close(io, queue), -ESRCH);
    CHECK_EQ(cringle_queue_open(io, 1, &queue), -ESRCH);
    CHECK_EQ(cringle_close(io), -ESRCH);
    /* An engine of its own works, and its number is another one. */
    cringle_io own = opened(NULL);
    CHECK(own != io);
    CHECK_EQ(result_of(own, one), PAGE);
    CHECK_EQ(cringle_close(io), -ESRCH);
    CHECK_EQ(cringle_close(own), 0);
    CHECK_EQ(cringle_close(own), -EBADF);
}

static void use_in_grandchild(cringle_io io)
{
    CHECK_EQ(in_child(use_after_fork, io), 0);
    use_after_fork(io);
}

static atomic_int stop;

static void *submit_until_stopped(void *arg)
{
    cringle_io io = *(cringle_io *)arg;
    unsigned char page[PAGE];
    struct cringle_op one = op(CRINGLE_READ, numbered_file(O_RDONLY), page, PAGE, 0);
    while (!atomic_load(&stop))
        CHECK_EQ(result_of(io, one), PAGE);
    return NULL;
}

/* While another thread uses the engine, so that locks are held at the time of some fork. */
static void child_is_refused_and_opens_its_own(void)
{
    cringle_io io = opened(NULL);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, submit_until_stopped, &io), 0);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(in_child(use_after_fork, io), 0);
    CHECK_EQ(in_child(use_in_grandchild, io), 0);
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    CHECK_EQ(cringle_close(io), 0);
}

static void leave_open(cringle_io io)
{
    static cringle_io left;
    static int64_t results[PAGES];
    static struct cringle_op ops[PAGES];
    static struct called called;
    (void)io;
    left = opened(NULL);
    sem_init(&called.posted, 0, 0);
    for (int i = 0; i < PAGES; i++)
        ops[i] = op(CRINGLE_READ, 0, memory, 1, 0);
    ops[0].fd = numbered_file(O_RDONLY);
    CHECK_EQ(cringle_submit_cb(left, ops, PAGES, results, count_call, &called, NULL), 0);
}

static void close_at_exit(void)
{
    static cringle_io io;
    if (io == 0) {
        io = opened(NULL);
        return;
    }
    CHECK_EQ(cringle_close(io), 0);
}

static void register_close_at_exit(cringle_io io)
{
    (void)io;
    close_at_exit();
    CHECK_EQ(atexit(close_at_exit), 0);
}

static void process_exits_with_open_engines(void)
{
    for (int i = 0; i < 10; i++)
        CHECK_EQ(in_child(leave_open, 0), 0);
    CHECK_EQ(in_child(register_close_at_exit, 0), 0);
}

static void *open_and_close(void *arg)
{
    struct cringle_op one = op(CRINGLE_READ, *(int *)arg, NULL, PAGE, 2 * PAGE);
    unsigned char page[PAGE];
    one.buf = page;
    for (int i = 0; i < 10; i++) {
        cringle_io io = opened(NULL);
        CHECK_EQ(result_of(io, one), PAGE);
        CHECK_EQ(cringle_close(io), 0);
        CHECK_EQ(cringle_close(io), -EBADF);
    }
    return NULL;
}

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void closed_engines_leave_no_descriptor(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int fd = numbered_file(O_RDONLY), before = open_descriptors();
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, open_and_close, &fd), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(open_descriptors(), before);
}

/* A cancel is pending before each call: it must neither end the process nor the call. */
static void *call_with_pending_cancel(void *arg)
{
    struct called called;
    struct cringle_params params = { .workers = 2 };
    struct cringle_stats stats = { .size = sizeof stats };
    struct cringle_buffer range = { memory, PAGE };
    cringle_io io = 0;
    int fd = *(int *)arg, event = eventfd(0, EFD_CLOEXEC), status = 0, state = -1;
    int32_t number = 0;
    int64_t results[2] = { 0 };
    char words[512];
    /* One batch, and one that takes several steps. */
    struct cringle_op ops[2] = { op(CRINGLE_READ, fd, memory, PAGE, 0),
                                 op(CRINGLE_FSYNC, fd, NULL, 0, 0) };
    sem_init(&called.posted, 0, 0);
    pthread_cancel(pthread_self());
    CHECK_EQ(cringle_open(&params, &io), 0);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(cringle_submit(io, ops, 1, results), 0);
        CHECK_EQ(results[0], PAGE);
        CHECK_EQ(cringle_submit(io, ops, 2, results), 0);
    }
    CHECK_EQ(cringle_submit_cb(io, ops, 2, results, count_call, &called, NULL), 0);
    while (sem_trywait(&called.posted) != 0)
        sched_yield();
    CHECK_EQ(cringle_submit_eventfd(io, ops, 2, results, event, &status, NULL), 0);
    CHECK_EQ(cringle_register_files(io, &fd, 1, &number), 0);
    CHECK_EQ(cringle_unregister_files(io, &number, 1), 0);
    CHECK_EQ(cringle_register_buffers(io, &range, 1, &number), 0);
    CHECK_EQ(cringle_unregister_buffers(io, &number, 1), 0);
    CHECK_EQ(cringle_get_stats(io, &stats), 0);
    CHECK(cringle_driver(io, words, sizeof words) > 0);
    CHECK(cringle_op_error(io, ops, -EINVAL, words, sizeof words) > 0);
    CHECK(cringle_strerror(-EINVAL, words, sizeof words) > 0);
    CHECK_EQ(cringle_close(io), 0);
    CHECK_EQ(status, 0);
    CHECK_EQ(cringle_close(io), -EBADF);
    /* The state is that of before. */
    CHECK_EQ(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state), 0);
    CHECK_EQ(state, PTHREAD_CANCEL_ENABLE);
    CHECK_EQ(cringle_close(io), -EBADF);
    close(event);
    CHECK_EQ(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state), 0);
    CHECK_EQ(state, PTHREAD_CANCEL_DISABLE);
    pthread_testcancel();
    return NULL;
}

static void cancel_of_a_thread_waits_for_the_function(void)
{
    pthread_t thread;
    void *returned = NULL;
    int fd = numbered_file(O_RDWR);
    CHECK_EQ(pthread_create(&thread, NULL, call_with_pending_cancel, &fd), 0);
    CHECK_EQ(pthread_join(thread, &returned), 0);
    CHECK(returned == PTHREAD_CANCELED);
}

const struct test_case lifecycle_cases[] = {
    { "second_close_is_refused", second_close_is_refused },
    { "one_of_several_closers_closes", one_of_several_closers_closes },
    { "close_and_submit_in_a_callback_are_refused", close_and_submit_in_a_callback_are_refused },
    { "close_waits_for_callbacks", close_waits_for_callbacks },
    { "child_is_refused_and_opens_its_own", child_is_refused_and_opens_its_own },
    { "process_exits_with_open_engines", process_exits_with_open_engines },
    { "cancel_of_a_thread_waits_for_the_function", cancel_of_a_thread_waits_for_the_function },
    { "closed_engines_leave_no_descriptor", closed_engines_leave_no_descriptor },
    { NULL, NULL },
};
