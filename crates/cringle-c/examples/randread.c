/*
 * Reads random blocks of a file, a batch with each call, and prints the rate.
 *
 *     cc -O2 randread.c $(pkg-config --cflags --libs cringle) -o randread
 *     ./randread FILE [SECONDS]
 */
#define _GNU_SOURCE 1 /* O_DIRECT */

#include <cringle.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 128, BLOCK = 4096 };

/* Prints the words of the last failure of the library. */
static int fail(const char *what)
{
    char words[512];
    cringle_last_error(words, sizeof words);
    fprintf(stderr, "randread: %s: %s\n", what, words);
    return 1;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Xorshift: the offsets need no better randomness. */
static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Reads batches until the time is over. Returns the number of reads, or -1 after an error. */
static int64_t read_for(double seconds, cringle_io io, int fd, uint64_t blocks, unsigned char *memory)
{
    struct cringle_op ops[BATCH];
    int64_t results[BATCH], reads = 0;
    uint64_t state = 88172645463325252u;
    double end = now() + seconds;

    memset(ops, 0, sizeof ops);
    for (int i = 0; i < BATCH; i++) {
        ops[i].kind = CRINGLE_READ;
        ops[i].fd = fd;
        ops[i].buf = memory + (size_t)i * BLOCK;
        ops[i].len = BLOCK;
    }
    do {
        for (int i = 0; i < BATCH; i++)
            ops[i].offset = next(&state) % blocks * BLOCK;
        int failed = cringle_submit(io, ops, BATCH, results);
        if (failed < 0)
            return fail("submit"), -1;
        for (int i = 0; failed > 0 && i < BATCH; i++) {
            char words[512];
            if (results[i] >= 0)
                continue;
            cringle_op_error(io, &ops[i], results[i], words, sizeof words);
            fprintf(stderr, "randread: %s\n", words);
            return -1;
        }
        reads += BATCH;
    } while (now() < end);
    return reads;
}

int main(int argc, char **argv)
{
    struct cringle_params params = { .size = sizeof params };
    unsigned char *memory = aligned_alloc(BLOCK, (size_t)BATCH * BLOCK);
    double seconds = argc > 2 ? atof(argv[2]) : 1.0;
    struct stat status;
    cringle_io io;
    char driver[512];

    if (argc < 2 || !memory) {
        fprintf(stderr, "usage: randread FILE [SECONDS]\n");
        return 2;
    }
    /* Without O_DIRECT where the file system does not support it. */
    int fd = open(argv[1], O_RDONLY | O_DIRECT);
    if (fd < 0)
        fd = open(argv[1], O_RDONLY);
    if (fd < 0 || fstat(fd, &status) != 0) {
        perror(argv[1]);
        return 1;
    }
    if (status.st_size < BLOCK) {
        fprintf(stderr, "randread: %s: smaller than a block of %d bytes\n", argv[1], BLOCK);
        return 1;
    }
    if (cringle_open(&params, &io) != 0)
        return fail("open");
    cringle_driver(io, driver, sizeof driver);

    double began = now();
    int64_t reads = read_for(seconds, io, fd, (uint64_t)status.st_size / BLOCK, memory);
    double took = now() - began;
    if (cringle_close(io) != 0)
        return fail("close");
    close(fd);
    free(memory);
    if (reads < 0)
        return 1;
    printf("%" PRId64 " reads of %d bytes in %.2f s: %.0f per second\n%s\n", reads, BLOCK, took,
           (double)reads / took, driver);
    return 0;
}
