#ifndef BLOCKIO_CRINGLE_H
#define BLOCKIO_CRINGLE_H

#include <cringle.h>
#include <stddef.h>
#include <stdint.h>

/* The engine of one capability. */
struct lane;

/* A batch, in a pinned byte array. Haskell stores the operations and this library the other fields. */
struct batch {
    struct lane *lane;
    struct batch *before, *after;
    void *mvar;
    int64_t capability;
    cringle_submission submission;
    struct cringle_op ops[];
};

/* Where they take a text, it has `size` bytes and gets the words of a failure. */
int blockio_open(uint32_t batch_limit, uint32_t in_flight_limit, struct lane **lane, char *text, size_t size);
/* Starts the batch. If it fails, the words replace the operations, of which `size` bytes exist. */
int blockio_submit(struct lane *lane, struct batch *batch, int64_t count, size_t size, int64_t *results,
                   int64_t capability, void *mvar);
void blockio_cancel(struct batch *batch);
int blockio_close(struct lane *lane);
void blockio_finalize(struct lane *lane);
int blockio_driver(struct lane *lane, char *text, size_t size);

#endif
