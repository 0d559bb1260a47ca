/*
 * Adds up the bytes of a file in a loop of libuv, with several batches under way: the loop waits for
 * an eventfd, and is free for timers, sockets and whatever else it has.
 *
 *     cc -O2 libuv.c $(pkg-config --cflags --libs cringle libuv) -o libuv
 *     ./libuv FILE
 */
#include <cringle.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

enum { REQUESTS = 4, BATCH = 16, BLOCK = 16384 };

/* A batch, with all that belongs to the library until `status` has changed. */
struct request {
    int is_used, status;
    size_t count;
    struct cringle_op ops[BATCH];
    int64_t results[BATCH];
    unsigned char memory[BATCH][BLOCK];
};

static struct {
    cringle_io io;
    int fd, event, failed;
    uint64_t size, next, bytes, sum;
    uv_poll_t poll;
} work;

static struct request requests[REQUESTS];

static void fail(const char *what)
{
    char words[512];
    cringle_last_error(words, sizeof words);
    fprintf(stderr, "libuv: %s: %s\n", what, words);
    work.failed = 1;
}

/* Starts a batch of the file's next blocks, if there are any. */
static void start(struct request *request)
{
    request->count = 0;
    while (!work.failed && request->count < BATCH && work.next < work.size) {
        struct cringle_op *op = &request->ops[request->count];
        memset(op, 0, sizeof *op);
        op->kind = CRINGLE_READ_FULL;
        op->fd = work.fd;
        op->buf = request->memory[request->count++];
        op->len = BLOCK;
        op->offset = work.next;
        work.next += BLOCK;
    }
    if (request->count == 0)
        return;
    if (cringle_submit_eventfd(work.io, request->ops, request->count, request->results, work.event,
                               &request->status, NULL) != 0)
        fail("submit");
    else
        request->is_used = 1;
}

static void add_up(const struct request *request)
{
    for (size_t i = 0; i < request->count; i++) {
        if (request->results[i] < 0) {
            char words[512];
            cringle_op_error(work.io, &request->ops[i], request->results[i], words, sizeof words);
            fprintf(stderr, "libuv: %s\n", words);
            work.failed = 1;
            continue;
        }
        work.bytes += (uint64_t)request->results[i];
        for (int64_t at = 0; at < request->results[i]; at++)
            work.sum += request->memory[i][at];
    }
}

/* The eventfd is readable: some of the requests have ended. */
static void on_event(uv_poll_t *poll, int status, int events)
{
    uint64_t count;
    int used = 0;
    (void)events;
    if (status < 0 || read(work.event, &count, sizeof count) != sizeof count)
        return;
    for (int i = 0; i < REQUESTS; i++) {
        struct request *request = &requests[i];
        if (request->is_used && __atomic_load_n(&request->status, __ATOMIC_ACQUIRE) != CRINGLE_PENDING) {
            request->is_used = 0;
            add_up(request);
            start(request);
        }
        used += request->is_used;
    }
    if (used == 0)
        uv_poll_stop(poll);
}

int main(int argc, char **argv)
{
    struct stat status;
    uv_loop_t *loop = uv_default_loop();

    if (argc != 2) {
        fprintf(stderr, "usage: libuv FILE\n");
        return 2;
    }
    work.fd = open(argv[1], O_RDONLY);
    if (work.fd < 0 || fstat(work.fd, &status) != 0) {
        perror(argv[1]);
        return 1;
    }
    work.size = (uint64_t)status.st_size;
    work.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (work.event < 0 || cringle_open(NULL, &work.io) != 0) {
        fail("open");
        return 1;
    }
    uv_poll_init(loop, &work.poll, work.event);
    uv_poll_start(&work.poll, UV_READABLE, on_event);
    for (int i = 0; i < REQUESTS; i++)
        start(&requests[i]);
    if (!requests[0].is_used)
        uv_poll_stop(&work.poll);
    uv_run(loop, UV_RUN_DEFAULT);

    cringle_close(work.io);
    close(work.event);
    close(work.fd);
    if (work.failed)
        return 1;
    printf("%" PRIu64 " bytes, sum %" PRIu64 "\n", work.bytes, work.sum);
    return 0;
}
