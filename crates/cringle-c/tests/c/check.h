/* What the test programs share: a case is a function, and a failed check ends the process. */
#ifndef CHECK_H
#define CHECK_H

#include <cringle.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Both sides are printed if they differ. */
#define CHECK_EQ(left, right)                                                                  \
    do {                                                                                       \
        long long left_ = (long long)(left), right_ = (long long)(right);                      \
        if (left_ != right_) {                                                                 \
            char words_[512];                                                                  \
            cringle_last_error(words_, sizeof words_);                                         \
            fprintf(stderr, "%s:%d: %s is %lld, and %s is %lld (last error: %s)\n", __FILE__,  \
                    __LINE__, #left, left_, #right, right_, words_);                           \
            _exit(1);                                                                          \
        }                                                                                      \
    } while (0)

#define CHECK(condition) CHECK_EQ(!!(condition), 1)

enum { PAGE = 4096, PAGES = 64 };

/* An engine with these parameters; NULL: the defaults. */
static inline cringle_io opened(const struct cringle_params *params)
{
    cringle_io io = 0;
    CHECK_EQ(cringle_open(params, &io), 0);
    CHECK(io != 0);
    return io;
}

/* A new file without a name: PAGES pages, each filled with its number + 1. */
static inline int numbered_file(int flags)
{
    char name[] = "numbered-XXXXXX";
    unsigned char page[PAGE];
    int made = mkstemp(name);
    CHECK(made >= 0);
    for (int i = 0; i < PAGES; i++) {
        memset(page, i + 1, sizeof page);
        CHECK_EQ(write(made, page, sizeof page), PAGE);
    }
    int fd = open(name, flags | O_CLOEXEC);
    CHECK(fd >= 0);
    close(made);
    unlink(name);
    return fd;
}

/* Whether a file that was opened with O_DIRECT refuses misaligned calls. On some file systems
 * (btrfs, tmpfs) they go through the page cache. */
static inline int refuses_misaligned(int fd)
{
    char bytes[100];
    return pread(fd, bytes, sizeof bytes, 1) < 0;
}

static inline struct cringle_op op(uint32_t kind, int fd, void *buf, uint64_t len, uint64_t offset)
{
    return (struct cringle_op){ .kind = kind, .fd = fd, .buf = buf, .len = len, .offset = offset };
}

/* The result of a single operation. */
static inline int64_t result_of(cringle_io io, struct cringle_op one)
{
    int64_t result = 12345;
    int failed = cringle_submit(io, &one, 1, &result);
    CHECK_EQ(failed, result < 0);
    return result;
}

/* Counts the calls of a callback, and keeps the last argument. */
struct called {
    sem_t posted;
    int failed;
};

static inline void count_call(void *arg, int failed)
{
    struct called *called = arg;
    called->failed = failed;
    sem_post(&called->posted);
}

static inline void wait_for_post(sem_t *posted)
{
    while (sem_wait(posted) != 0)
        CHECK_EQ(errno, EINTR);
}

/* A callback that keeps the only worker until `leave` is posted. */
struct gate {
    sem_t entered, leave;
};

static inline void hold_worker(void *arg, int failed)
{
    struct gate *gate = arg;
    CHECK_EQ(failed, 0);
    sem_post(&gate->entered);
    wait_for_post(&gate->leave);
}

/* Returns when the only worker is in the gate. */
static inline void hold(cringle_io io, struct gate *gate)
{
    sem_init(&gate->entered, 0, 0);
    sem_init(&gate->leave, 0, 0);
    CHECK_EQ(cringle_submit_cb(io, NULL, 0, NULL, hold_worker, gate, NULL), 0);
    wait_for_post(&gate->entered);
}

/* Whether the words contain the text. */
static inline void check_last_error(const char *text)
{
    char words[1024];
    cringle_last_error(words, sizeof words);
    if (!strstr(words, text)) {
        fprintf(stderr, "\"%s\" is not in \"%s\"\n", text, words);
        _exit(1);
    }
}

struct test_case {
    const char *name;
    void (*run)(void);
};

extern const struct test_case results_cases[], misuse_cases[], lifecycle_cases[], async_cases[],
    system_cases[], registered_cases[], large_cases[], queue_cases[];

#endif
