/* Registered files and buffers while submissions use them. */
#include "check.h"

static unsigned char memory[PAGES][PAGE];

static struct cringle_op registered(uint32_t kind, int32_t file, int32_t buffer, int page)
{
    struct cringle_op one = op(kind, file, memory[page], PAGE, (uint64_t)page * PAGE);
    one.flags = CRINGLE_OP_REGISTERED_FILE | CRINGLE_OP_REGISTERED_BUFFER;
    one.buffer = buffer;
    if (kind == CRINGLE_FSYNC) {
        one.flags = CRINGLE_OP_REGISTERED_FILE;
        one.buffer = 0;
    }
    return one;
}

/* Also a part of it that begins after others have ended, and a repeat of what was short. */
static void submission_keeps_what_was_registered_when_it_was_accepted(void)
{
    enum { OPS = 6 };
    cringle_io io = opened(NULL);
    struct gate gate;
    struct called called;
    int fd = numbered_file(O_RDWR), duplicate = dup(fd);
    int32_t file, buffer, later;
    int64_t results[OPS];
    struct cringle_buffer range = { memory, sizeof memory };
    sem_init(&called.posted, 0, 0);
    hold(io, &gate);

    close(duplicate);
    CHECK_EQ(cringle_register_files(io, &fd, 1, &file), 0);
    CHECK(fcntl(duplicate, F_GETFD) >= 0);
    CHECK_EQ(cringle_register_buffers(io, &range, 1, &buffer), 0);
    struct cringle_op ops[OPS] = {
        registered(CRINGLE_READ, file, buffer, 0),  registered(CRINGLE_READ_FULL, file, buffer, 63),
        registered(CRINGLE_FSYNC, file, buffer, 0), registered(CRINGLE_FSYNC, file, buffer, 0),
        registered(CRINGLE_WRITE, file, buffer, 2), registered(CRINGLE_READ, file, buffer, 3),
    };
    ops[1].offset += 1;
    /* The number that the next file gets: it is registered after the submission. */
    ops[5].fd = file + 1;
    CHECK_EQ(cringle_submit_cb(io, ops, OPS, results, count_call, &called, NULL), 0);
    CHECK_EQ(cringle_register_files(io, &fd, 1, &later), 0);
    CHECK_EQ(later & 0xffff, (file & 0xffff) + 1);
    CHECK_EQ(cringle_unregister_files(io, &file, 1), 0);
    CHECK_EQ(cringle_unregister_buffers(io, &buffer, 1), 0);
    CHECK_EQ(cringle_unregister_files(io, &file, 1), -EBADF);
    sem_post(&gate.leave);
    wait_for_post(&called.posted);
    CHECK_EQ(called.failed, 1);
    const int64_t expected[OPS] = { PAGE, PAGE - 1, 0, 0, PAGE, -EBADF };
    for (int i = 0; i < OPS; i++)
        CHECK_EQ(results[i], expected[i]);
    CHECK_EQ(memory[0][9], 1);
    CHECK_EQ(memory[63][9], 64);

    /* It keeps them no longer than that: the duplicate is closed. */
    CHECK_EQ(fcntl(duplicate, F_GETFD), -1);
    CHECK_EQ(cringle_close(io), 0);
}

static cringle_io storm_io;
static int32_t storm_buffers[PAGES];
static sem_t storm_began, storm_ended;

enum { ROUNDS = 300 };

static void *unregister_half(void *arg)
{
    unsigned seed = 1;
    (void)arg;
    for (int round = 0; round < ROUNDS; round++) {
        wait_for_post(&storm_began);
        for (volatile int i = rand_r(&seed) % 20000; i > 0; i--) {
        }
        CHECK_EQ(cringle_unregister_buffers(storm_io, storm_buffers, PAGES / 2), 0);
        sem_post(&storm_ended);
    }
    return NULL;
}

/* Each file has a size of its own. A short read is repeated, and no result is another's. */
static void results_stay_with_their_operations_while_buffers_are_unregistered(void)
{
    struct cringle_params params = { .driver = CRINGLE_DRIVER_EPOLL };
    struct cringle_buffer ranges[PAGES];
    struct cringle_op ops[PAGES];
    int64_t results[PAGES];
    pthread_t thread;
    storm_io = opened(&params);
    sem_init(&storm_began, 0, 0);
    sem_init(&storm_ended, 0, 0);
    for (int i = 0; i < PAGES; i++) {
        ranges[i] = (struct cringle_buffer){ memory[i], PAGE };
        ops[i] = op(CRINGLE_READ_FULL, memfd_create("one", MFD_CLOEXEC), memory[i], PAGE, 0);
        ops[i].flags = CRINGLE_OP_REGISTERED_BUFFER;
        CHECK_EQ(ftruncate(ops[i].fd, 100 + i), 0);
    }
    CHECK_EQ(pthread_create(&thread, NULL, unregister_half, NULL), 0);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_EQ(cringle_register_buffers(storm_io, ranges, PAGES, storm_buffers), 0);
        for (int i = 0; i < PAGES; i++)
            ops[i].buffer = storm_buffers[i];
        sem_post(&storm_began);
        int failed = cringle_submit(storm_io, ops, PAGES, results);
        /* The submission was accepted before, or after. */
        CHECK(failed == 0 || failed == PAGES / 2);
        for (int i = 0; i < PAGES; i++)
            CHECK_EQ(results[i], failed && i < PAGES / 2 ? -EFAULT : 100 + i);
        wait_for_post(&storm_ended);
        CHECK_EQ(cringle_unregister_buffers(storm_io, storm_buffers + PAGES / 2, PAGES / 2), 0);
    }
    pthread_join(thread, NULL);
    CHECK_EQ(cringle_close(storm_io), 0);
}

/* More of them than a part of the table has room for. */
static void many_registered_files_are_found_and_released(void)
{
    enum { FILES = 700 };
    cringle_io io = opened(NULL);
    int fd = numbered_file(O_RDONLY), fds[FILES];
    int32_t files[FILES];
    struct cringle_op ops[FILES];
    int64_t results[FILES];
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < FILES; i++)
        fds[i] = fd;
    CHECK_EQ(cringle_register_files(io, fds, FILES, files), 0);
    for (int released = 0; released < 2; released++) {
        for (int i = 0; i < FILES; i++) {
            ops[i] = op(CRINGLE_READ, files[i], memory[0] + 16 * i, 16, 0);
            ops[i].flags = CRINGLE_OP_REGISTERED_FILE;
        }
        CHECK_EQ(cringle_submit(io, ops, FILES, results), released ? FILES / 2 : 0);
        for (int i = 0; i < FILES; i++)
            CHECK_EQ(results[i], released && i < FILES / 2 ? -EBADF : 16);
        CHECK_EQ(cringle_unregister_files(io, files, FILES / 2), released ? -EBADF : 0);
    }
    CHECK_EQ(cringle_close(io), 0);
}

/* Also where both have as many of them. */
static void numbers_of_another_engine_are_refused(void)
{
    cringle_io io[2] = { opened(NULL), opened(NULL) };
    struct cringle_buffer range = { memory, sizeof memory };
    struct gate gates[2];
    cringle_submission submissions[2];
    int32_t files[2], buffers[2];
    int fd = numbered_file(O_RDONLY);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(cringle_register_files(io[i], &fd, 1, &files[i]), 0);
        CHECK_EQ(cringle_register_buffers(io[i], &range, 1, &buffers[i]), 0);
        hold(io[i], &gates[i]);
        /* It is queued behind the gate. */
        CHECK_EQ(cringle_submit_cb(io[i], NULL, 0, NULL, hold_worker, &gates[i], &submissions[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(cringle_cancel(io[i], submissions[!i]), -ESRCH);
        CHECK_EQ(cringle_unregister_files(io[i], &files[!i], 1), -EBADF);
        CHECK_EQ(cringle_unregister_buffers(io[i], &buffers[!i], 1), -EBADF);
        CHECK_EQ(cringle_unregister_files(io[i], &buffers[i], 1), -EBADF);
        CHECK_EQ(cringle_cancel(io[i], submissions[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        struct cringle_op one = registered(CRINGLE_READ, files[i], buffers[i], 1);
        struct cringle_op file = one, buffer = one;
        file.fd = files[!i];
        buffer.buffer = buffers[!i];
        sem_post(&gates[i].leave);
        sem_post(&gates[i].leave);
        CHECK_EQ(result_of(io[i], one), PAGE);
        CHECK_EQ(result_of(io[i], file), -EBADF);
        CHECK_EQ(result_of(io[i], buffer), -EFAULT);
        CHECK_EQ(cringle_close(io[i]), 0);
    }
}

const struct test_case registered_cases[] = {
    { "numbers_of_another_engine_are_refused", numbers_of_another_engine_are_refused },
    { "submission_keeps_what_was_registered_when_it_was_accepted",
      submission_keeps_what_was_registered_when_it_was_accepted },
    { "results_stay_with_their_operations_while_buffers_are_unregistered",
      results_stay_with_their_operations_while_buffers_are_unregistered },
    { "many_registered_files_are_found_and_released",
      many_registered_files_are_found_and_released },
    { NULL, NULL },
};
