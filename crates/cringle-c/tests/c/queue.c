/* Queues: a completion for each operation. */
#include "check.h"

#include <poll.h>

static unsigned char memory[PAGES][PAGE];

static cringle_queue queue_of(cringle_io io, uint32_t depth)
{
    cringle_queue queue = -1;
    CHECK_EQ(cringle_queue_open(io, depth, &queue), 0);
    CHECK(queue >= 0);
    return queue;
}

static struct cringle_op numbered(struct cringle_op op, uint64_t user_data)
{
    op.user_data = user_data;
    return op;
}

static struct cringle_op page_read(int fd, int page)
{
    return numbered(op(CRINGLE_READ, fd, memory[page % PAGES], PAGE,
                       (uint64_t)(page % PAGES) * PAGE), (uint64_t)page);
}

static int is_readable(int fd)
{
    struct pollfd poller = { .fd = fd, .events = POLLIN };
    return poll(&poller, 1, 0);
}

/* One completion, which is waited for. */
static struct cringle_completion next_of(cringle_io io, cringle_queue queue)
{
    struct cringle_completion one;
    CHECK_EQ(cringle_queue_poll(io, queue, &one, 1, -1), 1);
    return one;
}

static void each_operation_has_a_completion(void)
{
    cringle_io io = opened(NULL);
    cringle_queue queue = queue_of(io, PAGES + 4);
    int fd = numbered_file(O_RDWR), polled[PAGES + 4] = { 0 }, left = PAGES + 4;
    struct cringle_op ops[PAGES + 4];
    struct cringle_completion out[7];
    struct cringle_stats stats = { .size = sizeof stats };
    for (int i = 0; i < PAGES; i++)
        ops[i] = page_read(fd, i);
    ops[PAGES] = numbered(op(CRINGLE_READ, -1, memory[0], PAGE, 0), PAGES);
    ops[PAGES + 1] = numbered(op(99, fd, NULL, 0, 0), PAGES + 1);
    ops[PAGES + 2] = numbered(op(CRINGLE_FSYNC, fd, NULL, 0, 0), PAGES + 2);
    ops[PAGES + 3] = numbered(op(CRINGLE_READ_FULL, fd, malloc(100), 100, PAGES * PAGE - 60),
                              PAGES + 3);
    CHECK_EQ(cringle_queue_submit(io, queue, ops, PAGES + 4, NULL), PAGES + 4);
    while (left > 0) {
        int count = cringle_queue_poll(io, queue, out, 7, -1);
        CHECK(count > 0 && count <= 7);
        for (int i = 0; i < count; i++) {
            int64_t expected[] = { -EBADF, -EINVAL, 0, 60 };
            uint64_t at = out[i].user_data;
            CHECK_EQ(polled[at]++, 0);
            CHECK_EQ(out[i].result, at < PAGES ? PAGE : expected[at - PAGES]);
        }
        left -= count;
    }
    for (int i = 0; i < PAGES; i++)
        CHECK_EQ(memory[i][PAGE - 1], i + 1);
    CHECK_EQ(cringle_queue_poll(io, queue, out, 7, 0), 0);
    CHECK_EQ(cringle_get_stats(io, &stats), 0);
    CHECK_EQ(stats.operations, PAGES + 4);
    CHECK_EQ(stats.failed, 2);
    CHECK_EQ(stats.in_flight, 0);
    free(ops[PAGES + 3].buf);
    CHECK_EQ(cringle_queue_close(io, queue), 0);
    CHECK_EQ(cringle_close(io), 0);
}

static void full_queue_accepts_the_first_operations(void)
{
    enum { DEPTH = 4 };
    cringle_io io = opened(NULL);
    cringle_queue queue = queue_of(io, DEPTH);
    int fd = numbered_file(O_RDONLY), submitted = 0, polled[PAGES] = { 0 };
    struct cringle_op ops[PAGES];
    for (int i = 0; i < PAGES; i++)
        ops[i] = page_read(fd, i);
    CHECK_EQ(submitted = cringle_queue_submit(io, queue, ops, PAGES, NULL), DEPTH);
    CHECK_EQ(cringle_queue_submit(io, queue, ops, PAGES, NULL), 0);
    for (int ended = 0; ended < PAGES; ended++) {
        /* A completion that is not polled takes room, as an operation does. */
        struct cringle_completion one = next_of(io, queue);
        CHECK_EQ(one.result, PAGE);
        CHECK_EQ(polled[one.user_data]++, 0);
        int more = cringle_queue_submit(io, queue, ops + submitted, (size_t)(PAGES - submitted), NULL);
        CHECK_EQ(more, submitted < PAGES);
        submitted += more;
    }
    CHECK_EQ(cringle_close(io), 0);
}

/* A batch would report both at the end of the large read. */
static void small_operation_completes_before_a_large_one(void)
{
    enum { LARGE = 128 << 20 };
    cringle_io io = opened(NULL);
    cringle_queue queue = queue_of(io, 2);
    int fd = memfd_create("large", MFD_CLOEXEC);
    unsigned char *large = malloc(LARGE);
    CHECK_EQ(ftruncate(fd, LARGE), 0);
    struct cringle_op ops[2] = { numbered(op(CRINGLE_READ, fd, large, LARGE, 0), 1),
                                 numbered(op(CRINGLE_READ, fd, memory[0], PAGE, 0), 2) };
    CHECK_EQ(cringle_queue_submit(io, queue, ops, 2, NULL), 2);
    struct cringle_completion first = next_of(io, queue), second = next_of(io, queue);
    CHECK_EQ(first.user_data, 2);
    CHECK_EQ(first.result, PAGE);
    CHECK_EQ(second.user_data, 1);
    CHECK_EQ(second.result, LARGE);
    CHECK_EQ(cringle_close(io), 0);
    free(large);
}

static void descriptor_is_readable_while_completions_wait(void)
{
    cringle_io io = opened(NULL);
    cringle_queue queue = queue_of(io, 8), other = queue_of(io, 8);
    int fd = numbered_file(O_RDONLY), event = cringle_queue_fd(io, queue);
    struct cringle_op ops[3] = { page_read(fd, 0), page_read(fd, 1), page_read(fd, 2) };
    struct cringle_completion out[8];
    CHECK(event >= 0);
    CHECK_EQ(cringle_queue_fd(io, queue), event);
    for (int round = 0; round < 100; round++) {
        CHECK_EQ(is_readable(event), 0);
        CHECK_EQ(cringle_queue_submit(io, queue, ops, 3, NULL), 3);
        for (int ended = 0; ended < 3; ended++) {
            struct pollfd poller = { .fd = event, .events = POLLIN };
            CHECK_EQ(poll(&poller, 1, -1), 1);
            CHECK_EQ(cringle_queue_poll(io, queue, out, 1, 0), 1);
        }
    }
    /* The descriptor may come after the completions. */
    CHECK_EQ(cringle_queue_submit(io, other, ops, 1, NULL), 1);
    struct cringle_stats stats = { .size = sizeof stats };
    do {
        sched_yield();
        CHECK_EQ(cringle_get_stats(io, &stats), 0);
    } while (stats.in_flight > 0);
    struct pollfd late = { .fd = cringle_queue_fd(io, other), .events = POLLIN };
    CHECK_EQ(poll(&late, 1, -1), 1);
    CHECK_EQ(cringle_queue_poll(io, other, out, 8, 0), 1);
    CHECK_EQ(cringle_queue_close(io, queue), 0);
    CHECK_EQ(fcntl(event, F_GETFD), -1);
    CHECK_EQ(cringle_close(io), 0);
    CHECK_EQ(fcntl(late.fd, F_GETFD), -1);
}

static void cancelled_operations_end_one_by_one(void)
{
    enum { OPS = 20000 };
    static struct cringle_op ops[OPS];
    static cringle_submission numbers[OPS];
    static struct cringle_completion out[OPS];
    cringle_io io = opened(NULL);
    cringle_queue queue = queue_of(io, OPS);
    int fd = numbered_file(O_RDWR), cancelled = 0;
    struct gate gate;
    for (int i = 0; i < OPS; i++)
        ops[i] = numbered(op(CRINGLE_WRITE, fd, "new", 3, 0), (uint64_t)i);
    hold(io, &gate);
    CHECK_EQ(cringle_queue_submit(io, queue, ops, OPS, numbers), OPS);
    /* All but the last, of which the number is the only one that stays. */
    for (int i = 0; i < OPS - 1; i++)
        CHECK_EQ(cringle_cancel(io, numbers[i]), 0);
    CHECK_EQ(cringle_queue_poll(io, queue, out, OPS, 0), 0);
    sem_post(&gate.leave);
    for (int left = OPS; left > 0;) {
        int count = cringle_queue_poll(io, queue, out, OPS, -1);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            int is_last = out[i].user_data == OPS - 1;
            CHECK_EQ(out[i].result, is_last ? 3 : -ECANCELED);
            cancelled += !is_last;
        }
        left -= count;
    }
    CHECK_EQ(cancelled, OPS - 1);
    for (int i = 0; i < OPS; i += 1000)
        CHECK_EQ(cringle_cancel(io, numbers[i]), -ESRCH);
    CHECK_EQ(cringle_close(io), 0);
}

/* One operation is in the kernel at once. B's read would find A's last write if A went first. */
static void queues_of_a_worker_take_turns(void)
{
    enum { OPS = 2000 };
    static struct cringle_op ops[OPS];
    static unsigned char byte;
    struct cringle_params params = { .batch_limit = 1, .in_flight_limit = 1 };
    cringle_io io = opened(&params);
    cringle_queue a = queue_of(io, OPS), b = queue_of(io, 1);
    int fd = numbered_file(O_RDWR);
    struct gate gate;
    /* Half of them suspend no fiber. */
    for (int i = 0; i < OPS; i++)
        ops[i] = op(CRINGLE_READ, i % 2 ? fd : -1, memory[0], PAGE, 0);
    ops[OPS - 1] = op(CRINGLE_WRITE, fd, "X", 1, 0);
    struct cringle_op read_byte = op(CRINGLE_READ, fd, &byte, 1, 0);
    hold(io, &gate);
    CHECK_EQ(cringle_queue_submit(io, a, ops, OPS, NULL), OPS);
    CHECK_EQ(cringle_queue_submit(io, b, &read_byte, 1, NULL), 1);
    sem_post(&gate.leave);
    CHECK_EQ(next_of(io, b).result, 1);
    CHECK_EQ(byte, 1);
    for (int i = 0; i < OPS; i++)
        next_of(io, a);
    CHECK_EQ(pread(fd, &byte, 1, 0), 1);
    CHECK_EQ(byte, 'X');
    CHECK_EQ(cringle_close(io), 0);
}

struct shared {
    cringle_io io;
    cringle_queue queue;
    int fd;
    atomic_int submitted, polled, refused;
    atomic_uchar seen[1 << 16];
};

static void *poll_until_closed(void *arg)
{
    struct shared *shared = arg;
    struct cringle_completion out[5];
    int count;
    while ((count = cringle_queue_poll(shared->io, shared->queue, out, 5, -1)) > 0) {
        for (int i = 0; i < count; i++) {
            CHECK_EQ(out[i].result, PAGE);
            CHECK_EQ(atomic_fetch_add(&shared->seen[out[i].user_data], 1), 0);
        }
        atomic_fetch_add(&shared->polled, count);
    }
    CHECK_EQ(count, -EBADF);
    return NULL;
}

static void *submit_until_refused(void *arg)
{
    struct shared *shared = arg;
    for (;;) {
        int at = atomic_fetch_add(&shared->submitted, 1);
        if (at >= 1 << 16) {
            atomic_fetch_sub(&shared->submitted, 1);
            return NULL;
        }
        struct cringle_op one = numbered(op(CRINGLE_READ, shared->fd, memory[0], PAGE, 0), (uint64_t)at);
        int count;
        while ((count = cringle_queue_submit(shared->io, shared->queue, &one, 1, NULL)) == 0)
            sched_yield();
        if (count < 0) {
            CHECK_EQ(count, -EBADF);
            atomic_fetch_add(&shared->refused, 1);
            return NULL;
        }
    }
}

/* What is accepted beside a close ends, and is polled; the rest is refused. */
static void operations_are_accepted_or_refused_beside_a_close(void)
{
    enum { THREADS = 3 };
    for (int round = 0; round < 60; round++) {
        static struct shared shared;
        memset(&shared, 0, sizeof shared);
        struct cringle_params params = { .size = sizeof params, .workers = 2 };
        shared.io = opened(&params);
        shared.queue = queue_of(shared.io, 16);
        shared.fd = numbered_file(O_RDONLY);
        pthread_t submitters[THREADS], pollers[THREADS];
        for (int i = 0; i < THREADS; i++) {
            CHECK_EQ(pthread_create(&pollers[i], NULL, poll_until_closed, &shared), 0);
            CHECK_EQ(pthread_create(&submitters[i], NULL, submit_until_refused, &shared), 0);
        }
        while (atomic_load(&shared.polled) < round * 5)
            sched_yield();
        /* Half of the rounds close the engine. A poller that comes after it finds no engine. */
        if (round % 2 == 0)
            CHECK_EQ(cringle_queue_close(shared.io, shared.queue), 0);
        else
            CHECK_EQ(cringle_close(shared.io), 0);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(submitters[i], NULL);
            pthread_join(pollers[i], NULL);
        }
        if (round % 2 == 0) {
            struct cringle_stats stats = { .size = sizeof stats };
            CHECK_EQ(cringle_get_stats(shared.io, &stats), 0);
            CHECK_EQ(stats.operations, shared.submitted - shared.refused);
            CHECK_EQ(stats.in_flight, 0);
            CHECK_EQ(cringle_queue_close(shared.io, shared.queue), -EBADF);
            CHECK_EQ(cringle_close(shared.io), 0);
        }
        close(shared.fd);
    }
}

static void close_of_the_engine_performs_what_was_accepted(void)
{
    enum { OPS = 1000 };
    static struct cringle_op ops[OPS];
    cringle_io io = opened(NULL);
    cringle_queue queue = queue_of(io, OPS);
    int fd = numbered_file(O_RDWR);
    unsigned char bytes[OPS];
    for (int i = 0; i < OPS; i++)
        ops[i] = op(CRINGLE_WRITE, fd, "w", 1, (uint64_t)i);
    CHECK_EQ(cringle_queue_submit(io, queue, ops, OPS, NULL), OPS);
    CHECK_EQ(cringle_close(io), 0);
    CHECK_EQ(pread(fd, bytes, OPS, 0), OPS);
    for (int i = 0; i < OPS; i++)
        CHECK_EQ(bytes[i], 'w');
}

static void wrong_queue_calls_are_refused_with_words(void)
{
    cringle_io io = opened(NULL), other = opened(NULL);
    cringle_queue queue = queue_of(io, 1), closed = queue_of(io, 1), foreign = queue_of(other, 1);
    struct cringle_op one = op(CRINGLE_READ, -1, NULL, 0, 0);
    struct cringle_completion out;
    cringle_submission number;
    void *odd = (char *)memory + 1;
    CHECK_EQ(cringle_queue_close(io, closed), 0);
    cringle_queue wrong[] = { closed, foreign, -1, 0, INT32_MAX, INT32_MIN };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_EQ(cringle_queue_submit(io, wrong[i], &one, 1, NULL), -EBADF);
        CHECK_EQ(cringle_queue_poll(io, wrong[i], &out, 1, -1), -EBADF);
        CHECK_EQ(cringle_queue_fd(io, wrong[i]), -EBADF);
        CHECK_EQ(cringle_queue_close(io, wrong[i]), -EBADF);
        check_last_error("no such queue");
    }
    cringle_queue untouched = 77;
    CHECK_EQ(cringle_queue_open(io, 0, &untouched), -EINVAL);
    check_last_error("depth is 0, and must be between 1 and 65536");
    CHECK_EQ(cringle_queue_open(io, CRINGLE_MAX_DEPTH + 1, &untouched), -EINVAL);
    CHECK_EQ(cringle_queue_open(io, 1, NULL), -EFAULT);
    CHECK_EQ(cringle_queue_open(0, 1, &untouched), -EBADF);
    CHECK_EQ(untouched, 77);
    CHECK_EQ(cringle_queue_submit(io, queue, NULL, 1, NULL), -EFAULT);
    check_last_error("`ops` is NULL");
    CHECK_EQ(cringle_queue_submit(io, queue, odd, 1, NULL), -EINVAL);
    CHECK_EQ(cringle_queue_submit(io, queue, &one, 1, odd), -EINVAL);
    check_last_error("`submissions` is not aligned");
    CHECK_EQ(cringle_queue_submit(io, queue, &one, CRINGLE_MAX_OPS + 1, NULL), -E2BIG);
    CHECK_EQ(cringle_queue_submit(io, queue, NULL, 0, NULL), 0);
    CHECK_EQ(cringle_queue_poll(io, queue, NULL, 1, 0), -EFAULT);
    CHECK_EQ(cringle_queue_poll(io, queue, odd, 1, 0), -EINVAL);
    CHECK_EQ(cringle_queue_poll(io, queue, &out, 0, -1), -EINVAL);
    check_last_error("`count` is 0");
    /* None of them has taken the room. The time passes: nothing is under way. */
    CHECK_EQ(cringle_queue_poll(io, queue, &out, 1, 0), 0);
    CHECK_EQ(cringle_queue_poll(io, queue, &out, 1, 1), 0);
    CHECK_EQ(cringle_queue_submit(io, queue, &one, 1, &number), 1);
    CHECK_EQ(cringle_cancel(other, number), -ESRCH);
    CHECK_EQ(next_of(io, queue).result, -EBADF);
    CHECK_EQ(cringle_close(io), 0);
    CHECK_EQ(cringle_queue_submit(io, queue, &one, 1, NULL), -EBADF);
    CHECK_EQ(cringle_close(other), 0);
}

struct used {
    cringle_io io;
    cringle_queue queue;
    int fd;
    sem_t done;
};

static void use_in_a_callback(void *arg, int failed)
{
    struct used *used = arg;
    struct cringle_op one = page_read(used->fd, 3);
    struct cringle_completion out;
    cringle_queue another;
    (void)failed;
    CHECK_EQ(cringle_queue_open(used->io, 1, &another), 0);
    CHECK_EQ(cringle_queue_submit(used->io, used->queue, &one, 1, NULL), 1);
    CHECK_EQ(cringle_queue_poll(used->io, used->queue, &out, 1, 0), 0);
    CHECK_EQ(cringle_queue_poll(used->io, used->queue, &out, 1, -1), -EDEADLK);
    CHECK_EQ(cringle_queue_poll(used->io, used->queue, &out, 1, 5), -EDEADLK);
    CHECK_EQ(cringle_queue_close(used->io, another), -EDEADLK);
    check_last_error("close on another thread");
    sem_post(&used->done);
}

static void callback_submits_to_a_queue_and_does_not_wait(void)
{
    struct used used = { .io = opened(NULL), .fd = numbered_file(O_RDONLY) };
    used.queue = queue_of(used.io, 4);
    sem_init(&used.done, 0, 0);
    CHECK_EQ(cringle_submit_cb(used.io, NULL, 0, NULL, use_in_a_callback, &used, NULL), 0);
    wait_for_post(&used.done);
    struct cringle_completion one = next_of(used.io, used.queue);
    CHECK_EQ(one.user_data, 3);
    CHECK_EQ(memory[3][0], 4);
    CHECK_EQ(cringle_close(used.io), 0);
}

static void queued_operation_keeps_what_was_registered(void)
{
    cringle_io io = opened(NULL);
    cringle_queue queue = queue_of(io, 2);
    int fd = numbered_file(O_RDONLY);
    int32_t file, buffer;
    struct cringle_buffer range = { memory, sizeof memory };
    struct gate gate;
    CHECK_EQ(cringle_register_files(io, &fd, 1, &file), 0);
    CHECK_EQ(cringle_register_buffers(io, &range, 1, &buffer), 0);
    close(fd);
    struct cringle_op one = page_read(file, 5);
    one.flags = CRINGLE_OP_REGISTERED_FILE | CRINGLE_OP_REGISTERED_BUFFER;
    one.buffer = buffer;
    hold(io, &gate);
    CHECK_EQ(cringle_queue_submit(io, queue, &one, 1, NULL), 1);
    CHECK_EQ(cringle_unregister_files(io, &file, 1), 0);
    CHECK_EQ(cringle_unregister_buffers(io, &buffer, 1), 0);
    CHECK_EQ(cringle_queue_submit(io, queue, &one, 1, NULL), 1);
    sem_post(&gate.leave);
    int64_t results[2] = { next_of(io, queue).result, next_of(io, queue).result };
    CHECK_EQ(results[0] + results[1], PAGE - EFAULT);
    CHECK_EQ(memory[5][7], 6);
    CHECK_EQ(cringle_close(io), 0);
}

static void panic_in_a_queued_operation_is_its_result(void)
{
    cringle_io io = opened(NULL);
    cringle_queue queue = queue_of(io, 8);
    int fd = numbered_file(O_RDONLY);
    struct cringle_op one = page_read(fd, 0);
    CHECK_EQ(setenv("CRINGLE_C_SABOTAGE", "batches", 1), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(cringle_queue_submit(io, queue, &one, 1, NULL), 1);
        CHECK_EQ(next_of(io, queue).result, -ENOTRECOVERABLE);
    }
    CHECK_EQ(unsetenv("CRINGLE_C_SABOTAGE"), 0);
    CHECK_EQ(cringle_queue_submit(io, queue, &one, 1, NULL), 1);
    CHECK_EQ(next_of(io, queue).result, PAGE);
    CHECK_EQ(cringle_close(io), 0);
}

const struct test_case queue_cases[] = {
    { "each_operation_has_a_completion", each_operation_has_a_completion },
    { "full_queue_accepts_the_first_operations", full_queue_accepts_the_first_operations },
    { "small_operation_completes_before_a_large_one", small_operation_completes_before_a_large_one },
    { "descriptor_is_readable_while_completions_wait", descriptor_is_readable_while_completions_wait },
    { "cancelled_operations_end_one_by_one", cancelled_operations_end_one_by_one },
    { "queues_of_a_worker_take_turns", queues_of_a_worker_take_turns },
    { "operations_are_accepted_or_refused_beside_a_close",
      operations_are_accepted_or_refused_beside_a_close },
    { "close_of_the_engine_performs_what_was_accepted",
      close_of_the_engine_performs_what_was_accepted },
    { "wrong_queue_calls_are_refused_with_words", wrong_queue_calls_are_refused_with_words },
    { "callback_submits_to_a_queue_and_does_not_wait", callback_submits_to_a_queue_and_does_not_wait },
    { "queued_operation_keeps_what_was_registered", queued_operation_keeps_what_was_registered },
    { "panic_in_a_queued_operation_is_its_result", panic_in_a_queued_operation_is_its_result },
    { NULL, NULL },
};
