/*
 * Random calls with right and wrong arguments, from several threads at once:
 *
 *     fuzz CALLS SEED
 *
 * Each call must return what its documentation allows, each result must be possible, and each
 * submission must end exactly once. AddressSanitizer checks the rest. Memory that the library may
 * write is always real: freed memory is the caller's contract.
 */
#include "check.h"

#include <sys/epoll.h>
#include <sys/socket.h>

enum { THREADS = 3, ENGINES = 6, NUMBERS = 16, MAX_OPS = 24, BYTES = 3 * PAGE, FDS = 16 };

static _Atomic cringle_io engines[ENGINES];
static _Atomic cringle_submission submissions[NUMBERS];
static _Atomic int32_t numbers[NUMBERS];
static int fds[FDS];
static unsigned char *no_access, *read_only;
static atomic_llong started, ended, performed, succeeded;

struct random {
    uint64_t state;
};

static uint64_t next(struct random *random)
{
    random->state ^= random->state << 13;
    random->state ^= random->state >> 7;
    random->state ^= random->state << 17;
    return random->state * 0x2545F4914F6CDD1Dull;
}

static uint64_t below(struct random *random, uint64_t limit)
{
    return (next(random) >> 16) % limit;
}

static int one_in(struct random *random, uint64_t count)
{
    return below(random, count) == 0;
}

static void open_files(void)
{
    int ends[2];
    fds[0] = numbered_file(O_RDONLY);
    fds[1] = numbered_file(O_RDONLY);
    fds[2] = numbered_file(O_RDWR);
    fds[3] = numbered_file(O_RDWR | O_DIRECT);
    fds[4] = numbered_file(O_WRONLY);
    fds[5] = memfd_create("memory", MFD_CLOEXEC);
    CHECK_EQ(pipe(ends), 0);
    fds[6] = ends[0];
    fds[7] = ends[1];
    fds[8] = open("/dev/zero", O_RDWR | O_CLOEXEC);
    fds[9] = open("/dev/null", O_RDWR | O_CLOEXEC);
    fds[10] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fds[11] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fds[12] = epoll_create1(EPOLL_CLOEXEC);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    fds[13] = ends[0];
    fds[14] = open("/proc/version", O_RDONLY | O_CLOEXEC);
    fds[15] = 9999;
    no_access = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* A submission with all that it borrows, freed by the thread that started it when it has ended. */
struct submission {
    struct submission *next;
    atomic_int is_over;
    int status;
    size_t count;
    struct cringle_op ops[MAX_OPS];
    int64_t results[MAX_OPS];
    unsigned char *memory;
};

static uint64_t odd_number(struct random *random)
{
    const uint64_t odd[] = { 0, 1, 7, 511, PAGE + 1, INT32_MAX, UINT32_MAX, INT64_MAX,
                             (uint64_t)INT64_MAX + 1, UINT64_MAX - 1, UINT64_MAX };
    return one_in(random, 8) ? next(random) : odd[below(random, sizeof odd / sizeof *odd)];
}

static int32_t odd_int(struct random *random)
{
    const int32_t odd[] = { -1, INT32_MIN, INT32_MAX, 1 << 16, 0, 12345 };
    if (one_in(random, 2))
        return atomic_load(&numbers[below(random, NUMBERS)]);
    return one_in(random, 8) ? (int32_t)next(random) : odd[below(random, 6)];
}

static void fill(struct random *random, struct cringle_op *op, unsigned char *memory)
{
    uint64_t len = below(random, PAGE + 1), at = below(random, BYTES - PAGE);
    memset(op, 0, sizeof *op);
    op->kind = (uint32_t)below(random, 9);
    op->fd = fds[below(random, one_in(random, 2) ? 6 : FDS)];
    op->offset = below(random, PAGES * PAGE + 100);
    if (one_in(random, 2)) {
        len = PAGE;
        at -= at % PAGE;
        op->offset -= op->offset % PAGE;
    }
    op->buf = memory + at;
    op->len = len;
    op->user_data = next(random);
    if (one_in(random, 8))
        op->offset = odd_number(random);
    if (one_in(random, 8)) {
        void *odd[] = { NULL, (void *)1, no_access, (void *)(UINT64_MAX - PAGE), (void *)(1ull << 63),
                        read_only };
        op->buf = odd[below(random, 6)];
        op->len = op->buf == read_only ? len : odd_number(random);
        if (op->buf == read_only && op->kind % 2 == 0)
            op->buf = no_access;
    }
    if (one_in(random, 6)) {
        op->flags = (uint32_t)below(random, 4);
        op->buffer = odd_int(random);
        if (op->flags & CRINGLE_OP_REGISTERED_FILE)
            op->fd = odd_int(random);
    }
    if (one_in(random, 16))
        op->fd = odd_int(random);
    if (one_in(random, 50))
        op->flags = (uint32_t)next(random);
    if (one_in(random, 50))
        op->reserved[below(random, 2)] = next(random);
    if (one_in(random, 50))
        op->kind = (uint32_t)next(random);
}

static struct submission *new_submission(struct random *random)
{
    struct submission *new = malloc(sizeof *new);
    new->is_over = 0;
    new->count = below(random, MAX_OPS + 1);
    /* Aligned like a page, so that direct reads succeed; ASan sees the end. */
    new->memory = aligned_alloc(PAGE, BYTES);
    memset(new->memory, 1, BYTES);
    for (size_t i = 0; i < new->count; i++)
        fill(random, &new->ops[i], new->memory);
    return new;
}

static void check_results(struct submission *done, int failed)
{
    int found = 0;
    for (size_t i = 0; i < done->count; i++) {
        int64_t result = done->results[i];
        CHECK(result > -4096);
        CHECK(result <= 0 || (uint64_t)result <= done->ops[i].len);
        found += result < 0;
        atomic_fetch_add(&succeeded, result >= 0);
    }
    atomic_fetch_add(&performed, (long long)done->count);
    CHECK_EQ(failed, found);
}

static void end_submission(void *arg, int failed)
{
    struct submission *done = arg;
    check_results(done, failed);
    atomic_fetch_add(&ended, 1);
    atomic_store(&done->is_over, 1);
}

static void free_submission(struct submission *old)
{
    free(old->memory);
    free(old);
}

/* Frees what has ended; `all` waits for it. */
static void reap(struct submission **list, int all)
{
    struct submission **at = list;
    while (*at) {
        struct submission *one = *at;
        while (all && !atomic_load(&one->is_over))
            sched_yield();
        if (atomic_load(&one->is_over)) {
            *at = one->next;
            free_submission(one);
        } else {
            at = &one->next;
        }
    }
}

static cringle_io some_engine(struct random *random)
{
    if (one_in(random, 30))
        return one_in(random, 2) ? next(random) : below(random, 4);
    return atomic_load(&engines[below(random, ENGINES)]);
}

/* The results that a call on an engine may return at any time. */
static int is_gone(int result)
{
    return result == -EBADF;
}

static void replace_engine(struct random *random)
{
    struct cringle_params params = { 0 };
    cringle_io io = 0;
    params.size = one_in(random, 4) ? (uint32_t)below(random, 64) : (uint32_t)sizeof params;
    params.size = params.size > sizeof params ? 0 : params.size;
    params.workers = (uint32_t)below(random, 4);
    params.batch_limit = one_in(random, 8) ? (uint32_t)next(random) : (uint32_t)below(random, 70);
    params.in_flight_limit = one_in(random, 2) ? 0 : (uint32_t)below(random, 300);
    params.driver = (uint32_t)below(random, 8) % 4;
    params.flags = one_in(random, 8) ? (uint32_t)next(random) : (uint32_t)below(random, 2);
    int result = cringle_open(one_in(random, 8) ? NULL : &params, &io);
    CHECK(result == 0 || result == -EINVAL);
    CHECK_EQ(result == 0, io != 0);
    cringle_io old = atomic_exchange(&engines[below(random, ENGINES)], io);
    result = cringle_close(old);
    CHECK(result == 0 || is_gone(result));
    if (one_in(random, 4))
        CHECK(is_gone(cringle_close(old)));
}

static void submit(struct random *random, struct submission **list)
{
    struct submission *new = new_submission(random);
    cringle_io io = some_engine(random);
    int result;
    if (one_in(random, 2)) {
        result = cringle_submit(io, new->ops, new->count, new->results);
        CHECK(result >= 0 || is_gone(result));
        if (result >= 0)
            check_results(new, result);
        free_submission(new);
        return;
    }
    cringle_submission submission = 0;
    result = cringle_submit_cb(io, new->ops, new->count, new->results, end_submission, new,
                               one_in(random, 4) ? NULL : &submission);
    CHECK(result == 0 || is_gone(result));
    if (result < 0) {
        free_submission(new);
        return;
    }
    atomic_fetch_add(&started, 1);
    atomic_store(&submissions[below(random, NUMBERS)], submission);
    new->next = *list;
    *list = new;
}

static void submit_eventfd(struct random *random)
{
    struct submission *new = new_submission(random);
    int event = eventfd(0, EFD_CLOEXEC);
    uint64_t count;
    int wrong = one_in(random, 8);
    int result = cringle_submit_eventfd(some_engine(random), new->ops, new->count, new->results,
                                        wrong ? fds[below(random, 6)] : event, &new->status, NULL);
    CHECK(is_gone(result) || result == (wrong ? -EINVAL : 0));
    if (result == 0) {
        CHECK_EQ(read(event, &count, sizeof count), sizeof count);
        check_results(new, new->status);
    }
    close(event);
    free_submission(new);
}

static void use_queue(struct random *random)
{
    struct submission *new = new_submission(random);
    cringle_io io = some_engine(random);
    cringle_submission cancellable[MAX_OPS];
    struct cringle_completion out[MAX_OPS];
    cringle_queue queue;
    uint32_t depth = (uint32_t)(one_in(random, 8) ? odd_number(random) : 1 + below(random, MAX_OPS));
    int is_depth = depth >= 1 && depth <= CRINGLE_MAX_DEPTH;
    int result = cringle_queue_open(io, depth, &queue);
    CHECK(is_gone(result) || result == (is_depth ? 0 : -EINVAL));
    int left = 0, opened = result == 0;
    if (opened) {
        for (size_t i = 0; i < new->count; i++)
            new->ops[i].user_data = i;
        left = cringle_queue_submit(io, queue, new->ops, new->count, cancellable);
        CHECK(is_gone(left) || left == (int)(new->count < depth ? new->count : depth));
    }
    if (left > 0)
        atomic_store(&submissions[below(random, NUMBERS)], cancellable[0]);
    while (left > 0 && !one_in(random, 16)) {
        int count = cringle_queue_poll(io, queue, out, 1 + below(random, MAX_OPS),
                                       one_in(random, 2) ? -1 : 1);
        CHECK(count >= 0 || is_gone(count));
        for (int i = 0; i < count; i++) {
            CHECK(out[i].user_data < new->count);
            CHECK(out[i].result > -4096);
            CHECK(out[i].result <= 0 || (uint64_t)out[i].result <= new->ops[out[i].user_data].len);
            atomic_fetch_add(&succeeded, out[i].result >= 0);
            atomic_fetch_add(&performed, 1);
        }
        left = count < 0 ? 0 : left - count;
    }
    if (opened) {
        result = cringle_queue_close(io, queue);
        CHECK(result == 0 || is_gone(result));
    }
    /* Whatever closed the queue has waited for the operations. */
    free_submission(new);
}

static void call_another(struct random *random)
{
    cringle_io io = some_engine(random);
    union { struct cringle_stats stats; unsigned char room[4096]; } out;
    char words[300];
    int32_t some[3] = { odd_int(random), odd_int(random), odd_int(random) };
    int files[3] = { fds[below(random, FDS)], fds[below(random, FDS)], fds[0] }, result;
    struct cringle_buffer ranges[2] = { { words, 300 }, { (void *)odd_number(random), next(random) } };
    struct cringle_op op;
    size_t size = below(random, sizeof words + 1), count = below(random, 4);
    switch (below(random, 8)) {
    case 0:
        result = cringle_cancel(io, one_in(random, 4) ? odd_number(random)
                                                      : submissions[below(random, NUMBERS)]);
        CHECK(result == 0 || result == -ESRCH || is_gone(result));
        break;
    case 1:
        out.stats.size = one_in(random, 2) ? sizeof out.stats : below(random, sizeof out + 1);
        result = cringle_get_stats(io, &out.stats);
        CHECK(result == 0 || result == -EINVAL || is_gone(result));
        break;
    case 2:
        result = cringle_driver(io, words, size);
        CHECK(result == CRINGLE_DRIVER_URING || result == CRINGLE_DRIVER_EPOLL || is_gone(result));
        break;
    case 3:
        result = cringle_register_files(io, files, count, some);
        CHECK(result == 0 || is_gone(result));
        atomic_store(&numbers[below(random, NUMBERS)], some[0]);
        break;
    case 4:
        result = cringle_unregister_files(io, some, count);
        CHECK(result == 0 || is_gone(result));
        break;
    case 5:
        result = cringle_register_buffers(io, ranges, count % 3, some);
        CHECK(result == 0 || is_gone(result));
        break;
    case 6:
        result = cringle_unregister_buffers(io, some, count);
        CHECK(result == 0 || is_gone(result));
        break;
    default:
        fill(random, &op, out.room);
        cringle_op_error(io, &op, one_in(random, 2) ? -EINVAL : (int64_t)odd_number(random), words, size);
        cringle_strerror((int64_t)odd_number(random), words, size);
        cringle_last_error(words, size);
    }
}

struct part {
    long long calls;
    uint64_t seed;
};

static void *run_part(void *arg)
{
    struct part *part = arg;
    struct random random = { part->seed };
    struct submission *list = NULL;
    for (long long i = 0; i < part->calls; i++) {
        if (one_in(&random, 400))
            replace_engine(&random);
        else if (one_in(&random, 2))
            submit(&random, &list);
        else if (one_in(&random, 8))
            submit_eventfd(&random);
        else if (one_in(&random, 4))
            use_queue(&random);
        else
            call_another(&random);
        if (i % 64 == 0)
            reap(&list, 0);
    }
    reap(&list, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    struct part parts[THREADS];
    if (argc != 3)
        return 2;
    open_files();
    for (int i = 0; i < ENGINES; i++)
        engines[i] = opened(NULL);
    for (int i = 0; i < THREADS; i++) {
        parts[i].calls = atoll(argv[1]) / THREADS;
        parts[i].seed = (strtoull(argv[2], NULL, 10) + (uint64_t)i * 7919) * 0x9E3779B97F4A7C15ull + 1;
        CHECK_EQ(pthread_create(&threads[i], NULL, run_part, &parts[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < ENGINES; i++)
        cringle_close(engines[i]);
    CHECK_EQ(started, ended);
    /* The fuzzer is of use only if many operations are right. */
    CHECK(succeeded * 5 > performed);
    printf("%lld operations, %lld of them succeeded; %lld callbacks\n", (long long)performed,
           (long long)succeeded, (long long)ended);
    return 0;
}
