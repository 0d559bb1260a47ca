// What the cases of own.c share: threads that exchange messages.

#include "threads.h"

#include <sys/socket.h>

struct test_case {
    const char *name;
    void (*run)(void);
};

// Runs the case that the program's argument names. Returns the exit status.
static int run_case(const struct test_case *cases, size_t number, int count, char **arguments) {
    for (size_t i = 0; i < number; i++) {
        if (count > 1 && strcmp(arguments[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    }
    return 2;
}

static int workers;

static char read_plainly(int descriptor) {
    char byte = 0;
    CHECK(call(SYS_read, descriptor, (long)&byte, 1, 0) == 1);
    return byte;
}

// Computes for some 50 ms, and allocates.
static void compute(void) {
    for (int i = 0; i < 400; i++) {
        char *block = malloc(100 + i);
        memset(block, i, 100 + i);
        for (volatile int step = 0; step < 450000; step++)
            ;
        block = realloc(block, 5000);
        CHECK(block[99] == (char)i);
        free(block);
    }
}

// Computes until a fiber has become a thread of the system, however busy the machine is.
static void compute_for_long(void) {
    long before = call(SYS_gettid, 0, 0, 0, 0);
    do
        compute();
    while (getenv("LD_PRELOAD") != 0 && call(SYS_gettid, 0, 0, 0, 0) == before);
}

// Two threads that exchange messages through pipes, and two through a condition variable.

#define MESSAGES 1000
static int there[2], back[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;

static void *ask(void *unused) {
    int sum = 0, answer;
    for (int i = 0; i < MESSAGES; i++) {
        CHECK(write(there[1], &i, sizeof i) == sizeof i);
        CHECK(read(back[0], &answer, sizeof answer) == sizeof answer);
        sum += answer - i;
    }
    (void)unused;
    return (void *)(intptr_t)sum;
}

static void *answer(void *unused) {
    int number;
    for (int i = 0; i < MESSAGES; i++) {
        CHECK(read(there[0], &number, sizeof number) == sizeof number);
        number++;
        CHECK(write(back[1], &number, sizeof number) == sizeof number);
    }
    return unused;
}

static void *alternate(void *parity) {
    for (int i = 0; i < MESSAGES; i++) {
        pthread_mutex_lock(&mutex);
        while (turn % 2 != (intptr_t)parity)
            pthread_cond_wait(&changed, &mutex);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return parity;
}

static void exchange(void) {
    turn = 0;
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    pthread_t threads[] = {start(ask, 0), start(answer, 0), start(alternate, (void *)0),
                           start(alternate, (void *)1)};
    CHECK(join(threads[0]) == MESSAGES);
    for (int i = 1; i < 4; i++)
        join(threads[i]);
    CHECK(turn == 2 * MESSAGES);
    say("exchanged");
}
