/* What is refused: no call crashes, and each refusal has words. */
#include "check.h"

static _Alignas(PAGE) unsigned char memory[4 * PAGE];

static void ignore_call(void *arg, int failed)
{
    (void)arg;
    (void)failed;
}

static void closed_and_invented_engines_are_refused(void)
{
    cringle_io io = opened(NULL), other = opened(NULL);
    CHECK_EQ(cringle_close(io), 0);
    cringle_io next = opened(NULL);
    const cringle_io wrong[] = { io, 0, 1, UINT64_MAX, next + 1, next ^ 1ull << 16, next << 1 };
    struct cringle_op one = op(CRINGLE_READ, 0, memory, 1, 0);
    struct cringle_stats stats = { .size = sizeof stats };
    int64_t result;
    int32_t number = 0;
    int fd = 0, status;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cringle_io bad = wrong[i];
        CHECK_EQ(cringle_submit(bad, &one, 1, &result), -EBADF);
        CHECK_EQ(cringle_submit_cb(bad, &one, 1, &result, ignore_call, NULL, NULL), -EBADF);
        CHECK_EQ(cringle_submit_eventfd(bad, &one, 1, &result, 0, &status, NULL), -EBADF);
        CHECK_EQ(cringle_cancel(bad, 1), -EBADF);
        CHECK_EQ(cringle_get_stats(bad, &stats), -EBADF);
        CHECK_EQ(cringle_driver(bad, NULL, 0), -EBADF);
        CHECK_EQ(cringle_register_files(bad, &fd, 1, &number), -EBADF);
        CHECK_EQ(cringle_unregister_files(bad, &number, 1), -EBADF);
        CHECK_EQ(cringle_register_buffers(bad, NULL, 0, NULL), -EBADF);
        CHECK_EQ(cringle_unregister_buffers(bad, &number, 1), -EBADF);
        CHECK_EQ(cringle_close(bad), -EBADF);
        check_last_error("no such engine");
    }
    CHECK_EQ(cringle_close(other), 0);
    CHECK_EQ(cringle_close(next), 0);
}

static void wrong_parameters_are_refused_with_words(void)
{
    struct { struct cringle_params params; uint64_t newer; } grown = { .newer = 0 };
    struct cringle_params params = { 0 };
    cringle_io io = 77;
    CHECK_EQ(cringle_open(&params, NULL), -EFAULT);
    params.size = 8;
    CHECK_EQ(cringle_open(&params, &io), -EINVAL);
    check_last_error("params.size");
    params = (struct cringle_params){ .driver = 3 };
    CHECK_EQ(cringle_open(&params, &io), -EINVAL);
    check_last_error("params.driver");
    params = (struct cringle_params){ .flags = 1u << 31 };
    CHECK_EQ(cringle_open(&params, &io), -EINVAL);
    check_last_error("params.flags");
    params = (struct cringle_params){ .batch_limit = 1 << 15 };
    CHECK_EQ(cringle_open(&params, &io), -EINVAL);
    check_last_error("cringle_open: batch_limit");
    params = (struct cringle_params){ .batch_limit = 100, .in_flight_limit = 99 };
    CHECK_EQ(cringle_open(&params, &io), -EINVAL);
    check_last_error("in_flight_limit");
    params = (struct cringle_params){ .workers = UINT32_MAX };
    CHECK_EQ(cringle_open(&params, &io), -EINVAL);
    check_last_error("params.workers is 4294967295");
    CHECK_EQ(io, 77);
    grown.params.size = sizeof grown;
    grown.newer = 1;
    CHECK_EQ(cringle_open(&grown.params, &io), -E2BIG);
    grown.newer = 0;
    CHECK_EQ(cringle_open(&grown.params, &io), 0);
    CHECK_EQ(cringle_close(io), 0);
}

static void wrong_pointers_and_counts_are_refused(void)
{
    cringle_io io = opened(NULL);
    struct cringle_op one = op(CRINGLE_READ, 0, memory, 1, 0);
    struct cringle_stats stats = { .size = 7 };
    int64_t result;
    int status, odd_fds[1] = { 0 };
    int32_t number;
    CHECK_EQ(cringle_submit(io, NULL, 1, &result), -EFAULT);
    CHECK_EQ(cringle_submit(io, &one, 1, NULL), -EFAULT);
    CHECK_EQ(cringle_submit(io, &one, CRINGLE_MAX_OPS + 1, &result), -E2BIG);
    CHECK_EQ(cringle_submit(io, &one, SIZE_MAX, &result), -E2BIG);
    CHECK_EQ(cringle_submit(io, (void *)(memory + 1), 1, &result), -EINVAL);
    CHECK_EQ(cringle_submit(io, &one, 1, (void *)(memory + 4)), -EINVAL);
    CHECK_EQ(cringle_submit_cb(io, &one, 1, &result, NULL, NULL, NULL), -EFAULT);
    check_last_error("callback");
    CHECK_EQ(cringle_submit_eventfd(io, &one, 1, &result, -1, &status, NULL), -EBADF);
    CHECK_EQ(cringle_submit_eventfd(io, &one, 1, &result, 999, &status, NULL), -EBADF);
    CHECK_EQ(cringle_submit_eventfd(io, &one, 1, &result, numbered_file(O_RDWR), &status, NULL),
             -EINVAL);
    CHECK_EQ(cringle_submit_eventfd(io, &one, 1, &result, eventfd(0, 0), NULL, NULL), -EFAULT);
    CHECK_EQ(cringle_get_stats(io, NULL), -EFAULT);
    for (stats.size = 7; stats.size < sizeof stats; stats.size += stats.size < 12 ? 1 : 4)
        CHECK_EQ(cringle_get_stats(io, &stats), -EINVAL);
    CHECK_EQ(cringle_register_files(io, NULL, 1, &number), -EFAULT);
    CHECK_EQ(cringle_register_files(io, odd_fds, 1, NULL), -EFAULT);
    CHECK_EQ(cringle_register_files(io, odd_fds, 1 << 20, &number), -E2BIG);
    CHECK_EQ(cringle_unregister_files(io, NULL, 1), -EFAULT);
    CHECK_EQ(cringle_register_buffers(io, NULL, 1, &number), -EFAULT);
    odd_fds[0] = -5;
    CHECK_EQ(cringle_register_files(io, odd_fds, 1, &number), -EBADF);
    odd_fds[0] = 999;
    CHECK_EQ(cringle_register_files(io, odd_fds, 1, &number), -EBADF);
    check_last_error("descriptor 999");
    CHECK_EQ(cringle_cancel(io, 0), -ESRCH);
    CHECK_EQ(cringle_cancel(io, UINT64_MAX), -ESRCH);
    CHECK_EQ(cringle_close(io), 0);
}

/* Each operation is refused by itself; those around it are performed. */
static void wrong_operations_fail_alone(void)
{
    cringle_io io = opened(NULL);
    int fd = numbered_file(O_RDWR), ends[2], durable = numbered_file(O_RDWR | O_DSYNC);
    int direct = numbered_file(O_RDWR | O_DIRECT | O_SYNC);
    void *kernel = (void *)0xffff800000000000;
    unsigned char *none = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *constant = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(pipe(ends), 0);
    struct cringle_op reserved = op(CRINGLE_READ, fd, memory, 1, 0), flags = reserved,
                      buffer = reserved, number = reserved, sync = op(CRINGLE_FSYNC, fd, NULL, 0, 0);
    reserved.reserved[1] = 1;
    flags.flags = 1u << 30;
    buffer.buffer = 1;
    number.flags = CRINGLE_OP_REGISTERED_FILE;
    sync.flags = CRINGLE_OP_REGISTERED_BUFFER;
    const struct { struct cringle_op op; int64_t result; } rows[] = {
        { op(CRINGLE_READ, fd, memory, 1, 0), 1 },
        { op(0, fd, memory, 1, 0), -EINVAL },
        { op(7, fd, memory, 1, 0), -EINVAL },
        { op(UINT32_MAX, fd, memory, 1, 0), -EINVAL },
        { reserved, -EINVAL },
        { flags, -EINVAL },
        { buffer, -EINVAL },
        { number, -EBADF },
        { sync, -EINVAL },
        { op(CRINGLE_READ, -1, memory, 1, 0), -EBADF },
        { op(CRINGLE_READ, INT32_MIN, memory, 1, 0), -EBADF },
        { op(CRINGLE_READ, 9999, memory, 1, 0), -EBADF },
        { op(CRINGLE_WRITE, 9999, memory, 1, 0), -EBADF },
        { op(CRINGLE_FSYNC, 9999, NULL, 0, 0), -EBADF },
        { op(CRINGLE_READ, ends[0], memory, 1, 0), -ESPIPE },
        { op(CRINGLE_WRITE, ends[1], memory, 1, 0), -ESPIPE },
        { op(CRINGLE_READ, fd, NULL, 1, 0), -EFAULT },
        { op(CRINGLE_WRITE, fd, NULL, 1, 0), -EFAULT },
        { op(CRINGLE_READ, fd, none, 1, 0), -EFAULT },
        { op(CRINGLE_READ, fd, constant, 1, 0), -EFAULT },
        { op(CRINGLE_WRITE_FULL, fd, none, 1, 0), -EFAULT },
        { op(CRINGLE_READ, fd, kernel, PAGE, 0), -EFAULT },
        { op(CRINGLE_READ, durable, NULL, 1, 0), -EFAULT },
        { op(CRINGLE_WRITE, durable, NULL, PAGE, 0), -EFAULT },
        { op(CRINGLE_WRITE, durable, NULL, 0, 0), 0 },
        { op(CRINGLE_WRITE, durable, NULL, UINT64_MAX, 0), -EFAULT },
        { op(CRINGLE_WRITE, durable, none, PAGE, 0), -EFAULT },
        { op(CRINGLE_WRITE, durable, kernel, PAGE, 0), -EFAULT },
        { op(CRINGLE_WRITE_FULL, durable, kernel, PAGE, 0), -EFAULT },
        /* A write without memory leaves the file as it is, and later writes durable. */
        { op(CRINGLE_WRITE_FULL, durable, "x", 1, 5), 1 },
        { op(CRINGLE_FDATASYNC, durable, NULL, 0, 0), 0 },
        { op(CRINGLE_WRITE, durable, "y", 1, 6), 1 },
        { op(CRINGLE_WRITE, direct, NULL, PAGE, 0), -EFAULT },
        { op(CRINGLE_WRITE, direct, memory, 100, 0), refuses_misaligned(direct) ? -EINVAL : 100 },
        { op(CRINGLE_WRITE, direct, memory, PAGE, 0), PAGE },
        { op(CRINGLE_READ, fd, memory, 1, UINT64_MAX), -EINVAL },
        { op(CRINGLE_READ, fd, memory, 1, (uint64_t)INT64_MAX + 1), -EINVAL },
        { op(CRINGLE_READ_FULL, fd, memory, 1, UINT64_MAX), -EINVAL },
        { op(CRINGLE_WRITE_FULL, fd, "x", 1, 5), 1 },
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    struct cringle_op ops[ROWS];
    int64_t results[ROWS];
    int expected = 0;
    for (int i = 0; i < ROWS; i++) {
        ops[i] = rows[i].op;
        expected += rows[i].result < 0;
        if (result_of(io, ops[i]) != rows[i].result) {
            fprintf(stderr, "row %d, alone: ", i);
            CHECK_EQ(result_of(io, ops[i]), rows[i].result);
        }
    }
    CHECK_EQ(cringle_submit(io, ops, ROWS, results), expected);
    for (int i = 0; i < ROWS; i++) {
        char words[512];
        CHECK_EQ(results[i], rows[i].result);
        CHECK(cringle_op_error(io, &ops[i], results[i], words, sizeof words) > 0);
    }
    CHECK_EQ(cringle_close(io), 0);
}

static void misaligned_direct_read_names_what_is_misaligned(void)
{
    cringle_io io = opened(NULL);
    char words[512], small[10];
    int fd = numbered_file(O_RDONLY | O_DIRECT);
    struct cringle_op offset = op(CRINGLE_READ, fd, memory, PAGE, 7),
                      length = op(CRINGLE_READ, fd, memory, 100, 0),
                      address = op(CRINGLE_READ, fd, (void *)0x12345, PAGE, 0);
    CHECK_EQ(result_of(io, op(CRINGLE_READ, fd, memory, PAGE, PAGE)), PAGE);
    if (!refuses_misaligned(fd)) {
        puts("skipped: the file system performs misaligned direct calls");
        CHECK_EQ(cringle_close(io), 0);
        return;
    }
    cringle_op_error(io, &address, -EINVAL, words, sizeof words);
    CHECK(strstr(words, "the buffer's address 0x12345 ") != NULL);
    CHECK_EQ(result_of(io, offset), -EINVAL);
    cringle_op_error(io, &offset, -EINVAL, words, sizeof words);
    CHECK(strstr(words, "the offset 7 ") != NULL);
    CHECK_EQ(result_of(io, length), -EINVAL);
    size_t len = cringle_op_error(io, &length, -EINVAL, words, sizeof words);
    CHECK(strstr(words, "the length 100 ") != NULL);
    CHECK_EQ(len, strlen(words));
    CHECK_EQ(cringle_op_error(io, &length, -EINVAL, small, sizeof small), len);
    CHECK_EQ(strlen(small), sizeof small - 1);
    CHECK_EQ(cringle_close(io), 0);
}

/* For each -EINVAL, op_error names what is wrong. */
static void invalid_operations_are_explained(void)
{
    cringle_io io = opened(NULL);
    int fd = numbered_file(O_RDWR), maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    const struct { struct cringle_op op; const char *words; } rows[] = {
        { op(CRINGLE_FSYNC, maps, NULL, 0, 0), "the file does not support a sync" },
        { op(CRINGLE_WRITE_FULL, fd, memory, PAGE, INT64_MAX - 2), "offset + length" },
        { op(CRINGLE_READ, fd, memory, PAGE, INT64_MAX - 2), "offset + length" },
        { op(CRINGLE_READ, fd, memory, PAGE, UINT64_MAX), "the offset is larger" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char words[512];
        CHECK_EQ(result_of(io, rows[i].op), -EINVAL);
        cringle_op_error(io, &rows[i].op, -EINVAL, words, sizeof words);
        if (!strstr(words, rows[i].words)) {
            fprintf(stderr, "row %zu: %s\n", i, words);
            _exit(1);
        }
    }
    CHECK_EQ(cringle_close(io), 0);
}

static void errors_have_words_with_a_remedy(void)
{
    char words[512];
    const int64_t results[] = { -EBADF, -EINVAL, -EFAULT, -ECANCELED, -ESPIPE,    -EMFILE, -9999,
                                0,      4096,    -1,      INT64_MIN,  INT64_MAX, CRINGLE_PENDING };
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        size_t len = cringle_strerror(results[i], words, sizeof words);
        CHECK_EQ(len, strlen(words));
        CHECK(len > 5);
        CHECK_EQ(cringle_strerror(results[i], NULL, 0), len);
    }
    cringle_strerror(-EMFILE, words, sizeof words);
    CHECK(strstr(words, "ulimit -n") != NULL);
    CHECK_EQ(cringle_op_error(0, NULL, -EMFILE, NULL, 0), strlen(words));
}

/* Each number is a bug of the library, with words. */
static void check_bug(long long returned, const char *place)
{
    char words[1024] = "";
    setenv("CRINGLE_C_SABOTAGE", "", 1);
    CHECK_EQ(returned, -ENOTRECOVERABLE);
    CHECK(cringle_last_error(words, sizeof words) < sizeof words);
    CHECK(strstr(words, "a bug of the library: sabotaged") && strstr(words, place));
    setenv("CRINGLE_C_SABOTAGE", place, 1);
}

/* Builds with debug assertions panic where the environment says. The library's threads read it for
   submissions, so it is changed while there are none. */
static void panics_stay_in_the_library(void)
{
    cringle_io io = opened(NULL), other;
    int fd = numbered_file(O_RDONLY), event = eventfd(0, EFD_CLOEXEC), status;
    struct cringle_op one = op(CRINGLE_READ_FULL, fd, memory, PAGE, 0);
    struct cringle_buffer range = { memory, PAGE };
    struct cringle_stats stats = { .size = sizeof stats };
    struct called called;
    int64_t results[2];
    int32_t number = fd;
    char words[1024];
    sem_init(&called.posted, 0, 0);

    setenv("CRINGLE_C_SABOTAGE", "calls", 1);
    check_bug(cringle_open(NULL, &other), "calls");
    check_bug(cringle_submit(io, &one, 1, results), "calls");
    check_bug(cringle_submit_cb(io, &one, 1, results, count_call, &called, NULL), "calls");
    check_bug(cringle_submit_eventfd(io, &one, 1, results, event, &status, NULL), "calls");
    check_bug(cringle_cancel(io, 1), "calls");
    check_bug(cringle_register_files(io, &fd, 1, &number), "calls");
    check_bug(cringle_unregister_files(io, &number, 1), "calls");
    check_bug(cringle_register_buffers(io, &range, 1, &number), "calls");
    check_bug(cringle_unregister_buffers(io, &number, 1), "calls");
    check_bug(cringle_get_stats(io, &stats), "calls");
    check_bug(cringle_driver(io, NULL, 0), "calls");
    check_bug(cringle_close(io), "calls");
    CHECK(cringle_strerror(-EIO, words, sizeof words) > 0);
    CHECK(strstr(words, "sabotaged calls"));
    CHECK(cringle_op_error(io, &one, -EIO, words, sizeof words) > 0);
    CHECK(strstr(words, "sabotaged calls"));
    CHECK(cringle_last_error(words, sizeof words) > 0);
    CHECK(strstr(words, "sabotaged calls"));

    /* On the calling thread, on one of the library that it waits for, and on one that calls back. */
    setenv("CRINGLE_C_SABOTAGE", "batches", 1);
    struct cringle_op ops[2] = { one, op(CRINGLE_READ, fd, memory, PAGE, 0) };
    check_bug(cringle_submit(io, &ops[1], 1, results), "batches");
    check_bug(cringle_submit(io, ops, 2, results), "batches");
    CHECK_EQ(cringle_submit_cb(io, ops, 2, results, count_call, &called, NULL), 0);
    wait_for_post(&called.posted);
    CHECK_EQ(called.failed, 2);
    CHECK_EQ(results[0], -ENOTRECOVERABLE);
    CHECK_EQ(results[1], -ENOTRECOVERABLE);

    /* The engine works as before. */
    setenv("CRINGLE_C_SABOTAGE", "", 1);
    CHECK_EQ(result_of(io, one), PAGE);
    CHECK_EQ(cringle_close(io), 0);
    close(event);
}

const struct test_case misuse_cases[] = {
    { "closed_and_invented_engines_are_refused", closed_and_invented_engines_are_refused },
    { "wrong_parameters_are_refused_with_words", wrong_parameters_are_refused_with_words },
    { "wrong_pointers_and_counts_are_refused", wrong_pointers_and_counts_are_refused },
    { "wrong_operations_fail_alone", wrong_operations_fail_alone },
    { "misaligned_direct_read_names_what_is_misaligned",
      misaligned_direct_read_names_what_is_misaligned },
    { "invalid_operations_are_explained", invalid_operations_are_explained },
    { "errors_have_words_with_a_remedy", errors_have_words_with_a_remedy },
    { "panics_stay_in_the_library", panics_stay_in_the_library },
    { NULL, NULL },
};
