/* What operations return, and what they do. */
#include "check.h"

static unsigned char memory[PAGES][PAGE];

static void batch_returns_bytes_of_each_read(void)
{
    cringle_io io = opened(NULL);
    int fd = numbered_file(O_RDONLY);
    struct cringle_op ops[PAGES];
    int64_t results[PAGES];
    for (int i = 0; i < PAGES; i++)
        ops[i] = op(CRINGLE_READ, fd, memory[i], PAGE, (uint64_t)(PAGES - 1 - i) * PAGE);
    CHECK_EQ(cringle_submit(io, ops, PAGES, results), 0);
    for (int i = 0; i < PAGES; i++) {
        CHECK_EQ(results[i], PAGE);
        CHECK_EQ(memory[i][0], PAGES - i);
        CHECK_EQ(memory[i][PAGE - 1], PAGES - i);
    }
    CHECK_EQ(cringle_submit(io, ops, 0, results), 0);
    CHECK_EQ(cringle_submit(io, NULL, 0, NULL), 0);
    CHECK_EQ(cringle_close(io), 0);
}

static void short_counts_end_and_errors_are_results(void)
{
    cringle_io io = opened(NULL);
    int fd = numbered_file(O_RDONLY);
    struct cringle_op ops[] = {
        op(CRINGLE_READ, fd, memory[0], PAGE, (PAGES - 1) * PAGE + 100),
        op(CRINGLE_READ, fd, memory[1], PAGE, PAGES * PAGE),
        op(CRINGLE_WRITE, fd, memory[2], PAGE, 0),
        op(CRINGLE_READ_FULL, fd, memory[3], PAGE, (PAGES - 1) * PAGE + 1),
        op(CRINGLE_READ, fd, memory[4], 0, 0),
        op(CRINGLE_READ_FULL, fd, memory[5], 0, 0),
    };
    int64_t results[6];
    CHECK_EQ(cringle_submit(io, ops, 6, results), 1);
    CHECK_EQ(results[0], PAGE - 100);
    CHECK_EQ(results[1], 0);
    CHECK_EQ(results[2], -EBADF);
    CHECK_EQ(results[3], PAGE - 1);
    CHECK_EQ(results[4], 0);
    CHECK_EQ(results[5], 0);
    CHECK_EQ(cringle_close(io), 0);
}

/* A read of more than a system call transfers (2 GiB - 4 KiB), into memory that is mapped once. */
static void full_read_is_longer_than_a_call(void)
{
    cringle_io io = opened(NULL);
    const uint64_t len = (1ull << 31) + PAGE;
    int fd = memfd_create("sparse", MFD_CLOEXEC), window = memfd_create("window", MFD_CLOEXEC);
    const size_t step = 1 << 21;
    CHECK_EQ(ftruncate(fd, (off_t)len), 0);
    CHECK_EQ(ftruncate(window, (off_t)step), 0);
    unsigned char *at = mmap(NULL, len + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    for (uint64_t offset = 0; offset < len; offset += step)
        CHECK(mmap(at + offset, step, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, window, 0) !=
              MAP_FAILED);
    CHECK_EQ(pwrite(fd, "end", 3, (off_t)len - 3), 3);
    CHECK_EQ(result_of(io, op(CRINGLE_READ, fd, at, len, 0)), (1ll << 31) - PAGE);
    CHECK_EQ(result_of(io, op(CRINGLE_READ_FULL, fd, at, len, 0)), (int64_t)len);
    CHECK_EQ(memcmp(at + len - 3, "end", 3), 0);
    CHECK_EQ(cringle_close(io), 0);
}

static void sync_comes_between_the_operations_around_it(void)
{
    cringle_io io = opened(NULL);
    int fd = numbered_file(O_RDWR);
    struct cringle_op ops[] = {
        op(CRINGLE_WRITE_FULL, fd, "first", 5, 0),  op(CRINGLE_FSYNC, fd, NULL, 0, 0),
        op(CRINGLE_FDATASYNC, fd, NULL, 0, 0),      op(CRINGLE_WRITE, fd, "second", 6, 0),
        op(CRINGLE_FDATASYNC, fd, NULL, 0, 0),      op(CRINGLE_READ, fd, memory[0], 6, 0),
        op(CRINGLE_FSYNC, -1, NULL, 0, 0),
    };
    int64_t results[7];
    CHECK_EQ(cringle_submit(io, ops, 7, results), 1);
    const int64_t expected[] = { 5, 0, 0, 6, 0, 6, -EBADF };
    CHECK_EQ(memcmp(results, expected, sizeof expected), 0);
    CHECK_EQ(memcmp(memory[0], "second", 6), 0);
    CHECK_EQ(cringle_close(io), 0);
}

static void registered_files_and_buffers_work_and_expire(void)
{
    cringle_io io = opened(NULL);
    int fds[2] = { numbered_file(O_RDONLY), numbered_file(O_RDWR) };
    int32_t files[2], buffers[2];
    struct cringle_buffer ranges[2] = { { memory[0], PAGE }, { memory[1], 2 * PAGE } };
    /* The numbers may replace the descriptors. */
    memcpy(files, fds, sizeof files);
    CHECK_EQ(cringle_register_files(io, files, 2, files), 0);
    CHECK_EQ(cringle_register_buffers(io, ranges, 2, buffers), 0);
    close(fds[0]);
    close(fds[1]);
    struct cringle_op one = op(CRINGLE_READ, files[0], memory[2], PAGE, PAGE);
    one.flags = CRINGLE_OP_REGISTERED_FILE | CRINGLE_OP_REGISTERED_BUFFER;
    one.buffer = buffers[1];
    CHECK_EQ(result_of(io, one), PAGE);
    CHECK_EQ(memory[2][7], 2);
    one.len = PAGE + 1;
    CHECK_EQ(result_of(io, one), -EFAULT);
    one.len = UINT64_MAX;
    CHECK_EQ(result_of(io, one), -EFAULT);
    one.buf = memory[0];
    one.len = PAGE;
    CHECK_EQ(result_of(io, one), -EFAULT);
    one.buffer = buffers[0];
    CHECK_EQ(result_of(io, one), PAGE);
    struct cringle_op sync = op(CRINGLE_FDATASYNC, files[1], NULL, 0, 0);
    sync.flags = CRINGLE_OP_REGISTERED_FILE;
    CHECK_EQ(result_of(io, sync), 0);

    int32_t twice[2] = { files[0], files[0] };
    CHECK_EQ(cringle_unregister_files(io, twice, 2), -EBADF);
    CHECK_EQ(result_of(io, one), PAGE);
    CHECK_EQ(cringle_unregister_files(io, files, 1), 0);
    CHECK_EQ(result_of(io, one), -EBADF);
    CHECK_EQ(cringle_unregister_files(io, files, 2), -EBADF);
    CHECK_EQ(cringle_unregister_buffers(io, buffers, 2), 0);
    CHECK_EQ(cringle_unregister_buffers(io, buffers, 1), -EBADF);
    CHECK_EQ(cringle_close(io), 0);
}

static void counters_and_versions_are_those_of_the_library(void)
{
    cringle_io io = opened(NULL);
    int fd = numbered_file(O_RDWR);
    struct cringle_stats stats = { .size = sizeof stats };
    CHECK_EQ(result_of(io, op(CRINGLE_READ, fd, memory[0], PAGE, 0)), PAGE);
    CHECK_EQ(result_of(io, op(CRINGLE_WRITE, fd, memory[0], 10, 0)), 10);
    CHECK_EQ(result_of(io, op(CRINGLE_WRITE, -1, memory[0], 10, 0)), -EBADF);
    CHECK_EQ(cringle_get_stats(io, &stats), 0);
    CHECK_EQ(stats.submissions, 3);
    CHECK_EQ(stats.operations, 3);
    CHECK_EQ(stats.failed, 1);
    CHECK_EQ(stats.bytes_read, PAGE);
    CHECK_EQ(stats.bytes_written, 10);
    CHECK_EQ(stats.in_flight, 0);
    CHECK(stats.enters > 0);
    struct { struct cringle_stats stats; uint64_t newer; } grown = { .newer = 77 };
    grown.stats.size = sizeof grown;
    CHECK_EQ(cringle_get_stats(io, &grown.stats), 0);
    CHECK_EQ(grown.stats.submissions, 3);
    CHECK_EQ(grown.newer, 0);
    CHECK_EQ(cringle_abi_version(), CRINGLE_ABI_VERSION);
    CHECK(strchr(cringle_version(), '.') != NULL);
    CHECK_EQ(cringle_close(io), 0);
}

/* More descriptors than are searched one by one, in an order that is not theirs. */
static void submission_of_many_files_reads_each(void)
{
    enum { FILES = 100 };
    cringle_io io = opened(NULL);
    int fds[FILES];
    struct cringle_op ops[2 * FILES];
    int64_t results[2 * FILES];
    unsigned char bytes[2 * FILES];
    for (int i = 0; i < FILES; i++) {
        unsigned char byte = (unsigned char)i;
        fds[i] = memfd_create("one", MFD_CLOEXEC);
        CHECK_EQ(write(fds[i], &byte, 1), 1);
    }
    for (int i = 0; i < 2 * FILES; i++)
        ops[i] = op(CRINGLE_READ_FULL, fds[i * 37 % FILES], &bytes[i], 1, 0);
    CHECK_EQ(cringle_submit(io, ops, 2 * FILES, results), 0);
    for (int i = 0; i < 2 * FILES; i++)
        CHECK_EQ(bytes[i], i * 37 % FILES);
    CHECK_EQ(cringle_close(io), 0);
}

const struct test_case results_cases[] = {
    { "batch_returns_bytes_of_each_read", batch_returns_bytes_of_each_read },
    { "short_counts_end_and_errors_are_results", short_counts_end_and_errors_are_results },
    { "full_read_is_longer_than_a_call", full_read_is_longer_than_a_call },
    { "sync_comes_between_the_operations_around_it", sync_comes_between_the_operations_around_it },
    { "registered_files_and_buffers_work_and_expire",
      registered_files_and_buffers_work_and_expire },
    { "counters_and_versions_are_those_of_the_library",
      counters_and_versions_are_those_of_the_library },
    { "submission_of_many_files_reads_each", submission_of_many_files_reads_each },
    { NULL, NULL },
};
