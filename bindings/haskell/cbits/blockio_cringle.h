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

/* Where they take a text, it has `size` bytes and gets the words of a failure. `io` is the number of the
 * lane's engine: the lane may be finalized, and then its memory may belong to another engine. */
int blockio_open(uint32_t batch_limit, uint32_t in_flight_limit, struct lane **lane, cringle_io *io,
                 char *text, size_t size);
/* Starts the batch. If it fails, the words replace the operations, of which `size` bytes exist. */
int blockio_submit(struct lane *lane, cringle_io io, struct batch *batch, int64_t count, size_t size,
                   int64_t *results, int64_t capability, void *mvar);
void blockio_cancel(struct batch *batch);
/* Refuses further batches. */
void blockio_refuse(struct lane *lane, cringle_io io);
void blockio_finalize(struct lane *lane);
int blockio_driver(cringle_io io, char *text, size_t size);

#endif
