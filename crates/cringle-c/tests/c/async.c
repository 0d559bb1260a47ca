/* Callbacks, eventfds, cancels, and many threads. */
#include "check.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

static unsigned char memory[PAGES][PAGE];

static void callback_gets_the_number_of_failures(void)
{
    cringle_io io = opened(NULL);
    struct called called;
    struct cringle_op ops[3];
    int64_t results[3];
    cringle_submission submission = 0;
    int fd = numbered_file(O_RDONLY);
    ops[0] = op(CRINGLE_READ, fd, memory[0], PAGE, 0);
    ops[1] = op(CRINGLE_READ, -1, memory[1], PAGE, 0);
    ops[2] = op(CRINGLE_FSYNC, 9999, NULL, 0, 0);
    sem_init(&called.posted, 0, 0);
    CHECK_EQ(cringle_submit_cb(io, ops, 3, results, count_call, &called, &submission), 0);
    wait_for_post(&called.posted);
    CHECK_EQ(called.failed, 2);
    CHECK_EQ(results[0], PAGE);
    CHECK_EQ(results[1], -EBADF);
    CHECK_EQ(results[2], -EBADF);
    CHECK(submission != 0);
    CHECK_EQ(cringle_cancel(io, submission), -ESRCH);
    CHECK_EQ(cringle_close(io), 0);
}

struct chain {
    cringle_io io;
    struct cringle_op op;
    int64_t result;
    int left;
    sem_t ended;
};

static void submit_next(void *arg, int failed)
{
    struct chain *chain = arg;
    CHECK_EQ(failed, 0);
    CHECK_EQ(chain->result, PAGE);
    if (chain->left-- == 0)
        sem_post(&chain->ended);
    else
        CHECK_EQ(cringle_submit_cb(chain->io, &chain->op, 1, &chain->result, submit_next, chain,
                                   NULL), 0);
}

static void callback_submits_the_next(void)
{
    struct chain chain = { .io = opened(NULL), .left = 1000 };
    chain.op = op(CRINGLE_READ, numbered_file(O_RDONLY), memory[0], PAGE, 0);
    sem_init(&chain.ended, 0, 0);
    CHECK_EQ(cringle_submit_cb(chain.io, &chain.op, 1, &chain.result, submit_next, &chain, NULL), 0);
    wait_for_post(&chain.ended);
    CHECK_EQ(cringle_close(chain.io), 0);
}

static void full_eventfd_does_not_block_the_engine(void)
{
    cringle_io io = opened(NULL);
    int event = eventfd(0, EFD_CLOEXEC), status;
    uint64_t most = UINT64_MAX - 1;
    CHECK_EQ(write(event, &most, sizeof most), (ssize_t)sizeof most);
    CHECK_EQ(cringle_submit_eventfd(io, NULL, 0, NULL, event, &status, NULL), 0);
    CHECK_EQ(cringle_close(io), 0);
    CHECK_EQ(status, 0);
    close(event);
}

static void only_an_eventfd_is_taken_for_one(void)
{
    cringle_io io = opened(NULL);
    sigset_t none;
    int ends[2];
    sigemptyset(&none);
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    /* All but the last three have no type, as an eventfd. */
    int others[] = {
        epoll_create1(EPOLL_CLOEXEC),
        timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC),
        signalfd(-1, &none, SFD_CLOEXEC),
        (int)syscall(SYS_pidfd_open, getpid(), 0),
        inotify_init1(IN_CLOEXEC),
        ends[0],
        ends[1],
        numbered_file(O_RDWR),
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int status = 5;
        CHECK(others[i] >= 0);
        CHECK_EQ(cringle_submit_eventfd(io, NULL, 0, NULL, others[i], &status, NULL), -EINVAL);
        check_last_error("is no eventfd");
        CHECK_EQ(status, 5);
        close(others[i]);
    }
    CHECK_EQ(cringle_submit_eventfd(io, NULL, 0, NULL, 9999, &others[0], NULL), -EBADF);
    /* The check changes no count. */
    uint64_t count;
    int event = eventfd(3, EFD_CLOEXEC), status;
    CHECK_EQ(cringle_submit_eventfd(io, NULL, 0, NULL, event, &status, NULL), 0);
    CHECK_EQ(cringle_close(io), 0);
    CHECK_EQ(read(event, &count, sizeof count), sizeof count);
    CHECK_EQ(count, 4);
}

static void eventfd_reports_each_submission_once(void)
{
    cringle_io io = opened(NULL);
    int fd = numbered_file(O_RDONLY), event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct cringle_op ops[PAGES];
    int64_t results[PAGES];
    int statuses[PAGES], ended = 0;
    for (int i = 0; i < PAGES; i++) {
        ops[i] = op(CRINGLE_READ, i % 2 ? fd : -1, memory[i], PAGE, (uint64_t)i * PAGE);
        CHECK_EQ(cringle_submit_eventfd(io, &ops[i], 1, &results[i], event, &statuses[i], NULL), 0);
    }
    while (ended < PAGES) {
        struct pollfd poller = { .fd = event, .events = POLLIN };
        uint64_t more;
        CHECK_EQ(poll(&poller, 1, -1), 1);
        CHECK_EQ(read(event, &more, sizeof more), sizeof more);
        ended += (int)more;
        CHECK(ended <= PAGES);
    }
    for (int i = 0; i < PAGES; i++) {
        CHECK_EQ(statuses[i], i % 2 ? 0 : 1);
        CHECK_EQ(results[i], i % 2 ? PAGE : -EBADF);
    }
    CHECK_EQ(cringle_close(io), 0);
}

/* A submission that was accepted is in flight before its fiber starts. */
static void accepted_submissions_are_in_flight(void)
{
    cringle_io io = opened(NULL);
    struct cringle_stats stats = { .size = sizeof stats };
    struct gate gate;
    struct called called;
    sem_init(&called.posted, 0, 0);
    hold(io, &gate);
    /* The held callback's own submission has ended. */
    CHECK_EQ(cringle_get_stats(io, &stats), 0);
    CHECK_EQ(stats.in_flight, 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(cringle_submit_cb(io, NULL, 0, NULL, count_call, &called, NULL), 0);
    CHECK_EQ(cringle_get_stats(io, &stats), 0);
    CHECK_EQ(stats.in_flight, 3);
    sem_post(&gate.leave);
    for (int i = 0; i < 3; i++)
        wait_for_post(&called.posted);
    CHECK_EQ(cringle_get_stats(io, &stats), 0);
    CHECK_EQ(stats.in_flight, 0);
    CHECK_EQ(stats.submissions, 4);
    CHECK_EQ(cringle_close(io), 0);
}

static cringle_io asked_io;
static pthread_mutex_t asked_lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t asked_ended;

/* Holds a lock around each function that could wait. */
static void ask_under_a_lock(void *arg, int failed)
{
    static _Thread_local int depth;
    struct cringle_stats stats = { .size = sizeof stats };
    char why[256];
    cringle_io other;
    (void)arg;
    (void)failed;
    CHECK_EQ(depth++, 0);
    CHECK_EQ(pthread_mutex_lock(&asked_lock), 0);
    errno = 77;
    CHECK_EQ(cringle_get_stats(asked_io, &stats), 0);
    CHECK(cringle_driver(asked_io, why, sizeof why) > 0);
    CHECK_EQ(errno, 77);
    CHECK_EQ(cringle_open(NULL, &other), 0);
    CHECK(cringle_driver(other, why, sizeof why) > 0);
    CHECK_EQ(depth--, 1);
    CHECK_EQ(pthread_mutex_unlock(&asked_lock), 0);
    sem_post(&asked_ended);
}

/* The worker would run a second callback within the first one, which waits for the lock. */
static void no_callback_runs_within_another(void)
{
    enum { CALLBACKS = 8 };
    struct gate gate;
    asked_io = opened(NULL);
    sem_init(&asked_ended, 0, 0);
    hold(asked_io, &gate);
    for (int i = 0; i < CALLBACKS; i++)
        CHECK_EQ(cringle_submit_cb(asked_io, NULL, 0, NULL, ask_under_a_lock, NULL, NULL), 0);
    /* Neither waits for a callback that takes its time. */
    struct cringle_stats stats = { .size = sizeof stats };
    CHECK_EQ(cringle_get_stats(asked_io, &stats), 0);
    CHECK(cringle_driver(asked_io, NULL, 0) > 0);
    sem_post(&gate.leave);
    for (int i = 0; i < CALLBACKS; i++)
        wait_for_post(&asked_ended);
    CHECK_EQ(cringle_close(asked_io), 0);
}

static void cancel_before_the_start_performs_nothing(void)
{
    cringle_io io = opened(NULL);
    int fd = numbered_file(O_RDWR), event = eventfd(0, EFD_CLOEXEC), status;
    struct cringle_op ops[] = { op(CRINGLE_WRITE, fd, "new", 3, 0), op(CRINGLE_FSYNC, fd, NULL, 0, 0),
                                op(CRINGLE_FSYNC, fd, NULL, 0, 0),
                                op(CRINGLE_WRITE_FULL, fd, "new", 3, 0) };
    int64_t results[4];
    uint64_t count;
    struct gate gate;
    cringle_submission submission;
    hold(io, &gate);
    CHECK_EQ(cringle_submit_eventfd(io, ops, 4, results, event, &status, &submission), 0);
    CHECK_EQ(cringle_cancel(io, submission), 0);
    CHECK_EQ(cringle_cancel(io, submission), 0);
    sem_post(&gate.leave);
    CHECK_EQ(read(event, &count, sizeof count), sizeof count);
    CHECK_EQ(status, 4);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(results[i], -ECANCELED);
    CHECK_EQ(pread(fd, memory, 3, 0), 3);
    CHECK_EQ(memory[0][0], 1);
    CHECK_EQ(cringle_cancel(io, submission), -ESRCH);
    struct cringle_stats stats = { .size = sizeof stats };
    CHECK_EQ(cringle_get_stats(io, &stats), 0);
    CHECK_EQ(stats.cancelled, 4);
    CHECK_EQ(cringle_close(io), 0);
}

/* One operation is in the kernel at once, so that the worker takes turns with the gate's fiber. */
static void cancel_during_a_submission_ends_the_rest(void)
{
    enum { READS = 20000 };
    static struct cringle_op ops[READS];
    static int64_t results[READS];
    struct cringle_params params = { .batch_limit = 1, .in_flight_limit = 1 };
    cringle_io io = opened(&params);
    int fd = numbered_file(O_RDONLY);
    struct called called;
    struct gate gate;
    cringle_submission submission;
    for (int i = 0; i < READS; i++)
        ops[i] = op(CRINGLE_READ, fd, memory[i % PAGES], PAGE, (uint64_t)(i % PAGES) * PAGE);
    sem_init(&called.posted, 0, 0);
    CHECK_EQ(cringle_submit_cb(io, ops, READS, results, count_call, &called, &submission), 0);
    hold(io, &gate);
    int cancelled = cringle_cancel(io, submission);
    sem_post(&gate.leave);
    wait_for_post(&called.posted);
    int failed = 0;
    for (int i = 0; i < READS; i++) {
        failed += results[i] < 0;
        CHECK(results[i] == PAGE || results[i] == -ECANCELED);
    }
    CHECK_EQ(called.failed, failed);
    /* The gate's fiber came between two operations, unless the driver performed all at once. */
    CHECK_EQ(cancelled == 0, failed > 0);
    printf("%d of %d were cancelled\n", failed, READS);
    CHECK_EQ(cringle_close(io), 0);
}

struct submitter {
    cringle_io io;
    int fd, number;
};

static void *submit_batches(void *arg)
{
    struct submitter *submitter = arg;
    enum { BATCH = 32 };
    unsigned char *pages = malloc(BATCH * PAGE);
    struct cringle_op ops[BATCH];
    int64_t results[BATCH];
    struct called called;
    sem_init(&called.posted, 0, 0);
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < BATCH; i++) {
            uint64_t page = (uint64_t)(submitter->number * 7 + round * 3 + i * 5) % PAGES;
            ops[i] = op(CRINGLE_READ + (i % 2 ? 2 : 0), submitter->fd, pages + i * PAGE, PAGE,
                        page * PAGE);
        }
        if (round % 2) {
            CHECK_EQ(cringle_submit(submitter->io, ops, BATCH, results), 0);
        } else {
            CHECK_EQ(cringle_submit_cb(submitter->io, ops, BATCH, results, count_call, &called, NULL),
                     0);
            wait_for_post(&called.posted);
        }
        for (int i = 0; i < BATCH; i++) {
            CHECK_EQ(results[i], PAGE);
            CHECK_EQ(pages[i * PAGE + 9], ops[i].offset / PAGE + 1);
        }
    }
    free(pages);
    return NULL;
}

static void many_threads_submit_to_several_workers(void)
{
    enum { THREADS = 16 };
    struct cringle_params params = { .size = sizeof params, .workers = 3, .batch_limit = 16,
                                     .in_flight_limit = 24 };
    cringle_io io = opened(&params);
    int fd = numbered_file(O_RDONLY);
    pthread_t threads[THREADS];
    struct submitter submitters[THREADS];
    for (int i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){ io, fd, i };
        CHECK_EQ(pthread_create(&threads[i], NULL, submit_batches, &submitters[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    struct cringle_stats stats = { .size = sizeof stats };
    CHECK_EQ(cringle_get_stats(io, &stats), 0);
    CHECK_EQ(stats.operations, 16 * 30 * 32);
    CHECK_EQ(stats.failed, 0);
    CHECK_EQ(cringle_close(io), 0);
}

const struct test_case async_cases[] = {
    { "callback_gets_the_number_of_failures", callback_gets_the_number_of_failures },
    { "callback_submits_the_next", callback_submits_the_next },
    { "full_eventfd_does_not_block_the_engine", full_eventfd_does_not_block_the_engine },
    { "only_an_eventfd_is_taken_for_one", only_an_eventfd_is_taken_for_one },
    { "eventfd_reports_each_submission_once", eventfd_reports_each_submission_once },
    { "accepted_submissions_are_in_flight", accepted_submissions_are_in_flight },
    { "no_callback_runs_within_another", no_callback_runs_within_another },
    { "cancel_before_the_start_performs_nothing", cancel_before_the_start_performs_nothing },
    { "cancel_during_a_submission_ends_the_rest", cancel_during_a_submission_ends_the_rest },
    { "many_threads_submit_to_several_workers", many_threads_submit_to_several_workers },
    { NULL, NULL },
};
