/* Operations that are larger than a piece are performed in pieces, and end as one call does. */
#include "check.h"

enum { PIECE = 4 << 20 };

static unsigned char *mapped(size_t len)
{
    void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* Each byte differs from that at the same place of another piece. */
static unsigned char byte_at(size_t at)
{
    return (unsigned char)(at * 7 + at / PIECE);
}

static void pieces_are_like_one_call(void)
{
    enum { LEN = 3 * PIECE + 5 };
    cringle_io io = opened(NULL);
    int file = memfd_create("large", MFD_CLOEXEC), direct = numbered_file(O_RDWR | O_DIRECT);
    unsigned char *from = mapped(LEN), *to = mapped(2 * LEN);
    for (size_t i = 0; i < LEN; i++)
        from[i] = byte_at(i);
    for (uint32_t full = 0; full <= 2; full += 2) {
        CHECK_EQ(ftruncate(file, 0), 0);
        CHECK_EQ(result_of(io, op(CRINGLE_WRITE + full, file, from, LEN, 3)), LEN);
        CHECK_EQ(lseek(file, 0, SEEK_END), LEN + 3);
        memset(to, 0, 2 * LEN);
        CHECK_EQ(result_of(io, op(CRINGLE_READ + full, file, to, 2 * LEN, 3)), LEN);
        CHECK_EQ(memcmp(from, to, LEN), 0);
        /* A whole number of pieces, and one byte more. */
        CHECK_EQ(result_of(io, op(CRINGLE_READ + full, file, to, 2 * PIECE, 3)), 2 * PIECE);
        CHECK_EQ(result_of(io, op(CRINGLE_READ + full, file, to, PIECE + 1, 3)), PIECE + 1);
        CHECK_EQ(to[PIECE], byte_at(PIECE));
        /* Errors of the first piece, and what the kernel refuses as a whole. */
        CHECK_EQ(result_of(io, op(CRINGLE_READ + full, -1, to, LEN, 0)), -EBADF);
        CHECK_EQ(result_of(io, op(CRINGLE_READ + full, file, NULL, LEN, 0)), -EFAULT);
        CHECK_EQ(result_of(io, op(CRINGLE_READ + full, file, to, LEN, INT64_MAX - 2 * PIECE)),
                 -EINVAL);
        CHECK_EQ(result_of(io, op(CRINGLE_WRITE + full, file, (void *)(1ull << 63), LEN, 0)), -EFAULT);
        if (refuses_misaligned(direct)) {
            CHECK_EQ(result_of(io, op(CRINGLE_WRITE + full, direct, to, PIECE + 100, 0)), -EINVAL);
            CHECK_EQ(lseek(direct, 0, SEEK_END), PAGES * PAGE);
        }
    }
    /* Memory ends in the second piece. */
    unsigned char *part = mapped(PIECE + 2 * PAGE);
    CHECK_EQ(munmap(part + PIECE + PAGE, PAGE), 0);
    CHECK_EQ(result_of(io, op(CRINGLE_READ, file, part, 2 * PIECE, 0)), PIECE + PAGE);
    CHECK_EQ(result_of(io, op(CRINGLE_READ_FULL, file, part, 2 * PIECE, 0)), -EFAULT);
    CHECK_EQ(cringle_close(io), 0);
}

static void limit_of_file_sizes_leaves_the_bytes_before_it(void)
{
    cringle_io io = opened(NULL);
    struct rlimit limit = { PIECE + 100, RLIM_INFINITY };
    unsigned char *from = mapped(3 * PIECE);
    char words[512];
    int file = numbered_file(O_RDWR);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_EQ(result_of(io, op(CRINGLE_WRITE, file, from, 3 * PIECE, 0)), PIECE + 100);
    CHECK_EQ(result_of(io, op(CRINGLE_WRITE_FULL, file, from, 3 * PIECE, 0)), -EFBIG);
    CHECK_EQ(result_of(io, op(CRINGLE_WRITE, file, from, 1, PIECE + 100)), -EFBIG);
    cringle_strerror(-EFBIG, words, sizeof words);
    CHECK(strstr(words, "RLIMIT_FSIZE") != NULL);
    CHECK_EQ(cringle_close(io), 0);
}

/* More of them than run at the same time, among small ones, on both sides of a sync. */
static void large_and_small_operations_share_an_array(void)
{
    enum { LARGE = 6, OPS = 2 * LARGE + 1 };
    cringle_io io = opened(NULL);
    int file = memfd_create("large", MFD_CLOEXEC);
    unsigned char *memory = mapped((size_t)LARGE * 2 * PIECE);
    struct cringle_op ops[OPS];
    int64_t results[OPS];
    CHECK_EQ(ftruncate(file, 2 * PIECE), 0);
    for (int i = 0; i < OPS; i++)
        ops[i] = i == LARGE ? op(CRINGLE_FSYNC, file, NULL, 2 * PIECE, 0)
                            : op(i % 4 < 2 ? CRINGLE_READ : CRINGLE_READ_FULL, file, memory + i,
                                 i % 2 ? 10 : 2 * PIECE, (uint64_t)i);
    ops[4].fd = -1;
    CHECK_EQ(cringle_submit(io, ops, OPS, results), 1);
    for (int i = 0; i < OPS; i++)
        CHECK_EQ(results[i], i == 4 ? -EBADF : i == LARGE ? 0 : i % 2 ? 10 : 2 * PIECE - i);
    CHECK_EQ(cringle_close(io), 0);
}

struct cancel {
    cringle_io io;
    cringle_submission submission;
};

static void cancel_in_callback(void *arg, int failed)
{
    struct cancel *cancel = arg;
    CHECK_EQ(failed, 0);
    CHECK_EQ(cringle_cancel(cancel->io, cancel->submission), 0);
}

/* The callback that cancels runs after the first piece has begun: on the only worker, they take
   turns. */
static void cancel_takes_effect_between_pieces(void)
{
    enum { LEN = 8 * PIECE };
    unsigned char *memory = mapped(LEN);
    /* In the page cache, so that one call would copy all of it at once. (A read of /dev/zero
       through a ring may be short.) */
    int file = numbered_file(O_RDWR);
    for (int done = 0; done < LEN; done += PIECE)
        CHECK_EQ(pwrite(file, memory, PIECE, done), PIECE);
    for (uint32_t driver = 0; driver < 2; driver++)
        for (uint32_t full = 0; full <= 2; full += 2) {
            struct cringle_params params = { .driver = driver ? CRINGLE_DRIVER_EPOLL : 0 };
            struct cancel cancel = { .io = opened(&params) };
            struct cringle_op one = op(CRINGLE_READ + full, file, memory, LEN, 0);
            struct called called;
            struct gate gate;
            int64_t result;
            sem_init(&called.posted, 0, 0);
            hold(cancel.io, &gate);
            CHECK_EQ(cringle_submit_cb(cancel.io, &one, 1, &result, count_call, &called,
                                       &cancel.submission), 0);
            CHECK_EQ(cringle_submit_cb(cancel.io, NULL, 0, NULL, cancel_in_callback, &cancel, NULL),
                     0);
            sem_post(&gate.leave);
            wait_for_post(&called.posted);
            CHECK(result == -ECANCELED || (!full && result > 0 && result < LEN));
            CHECK_EQ(called.failed, result < 0);
            CHECK_EQ(cringle_close(cancel.io), 0);
        }
}

const struct test_case large_cases[] = {
    { "pieces_are_like_one_call", pieces_are_like_one_call },
    { "limit_of_file_sizes_leaves_the_bytes_before_it",
      limit_of_file_sizes_leaves_the_bytes_before_it },
    { "large_and_small_operations_share_an_array", large_and_small_operations_share_an_array },
    { "cancel_takes_effect_between_pieces", cancel_takes_effect_between_pieces },
    { NULL, NULL },
};
