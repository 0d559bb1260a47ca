// What the cases of own.c share: checks, plain system calls, and threads that exchange messages.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    if (!(what)) \
        dprintf(1, "line %d: not so: %s (errno %d)\n", __LINE__, #what, errno), _exit(1)

typedef void *routine(void *);

static sem_t ready, done;
static int pipes[2], workers;

static void say(const char *what) { dprintf(1, "%s\n", what); }

static pthread_t start(routine *routine, void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, routine, argument) == 0);
    return thread;
}

static intptr_t join(pthread_t thread) {
    void *value;
    CHECK(pthread_join(thread, &value) == 0);
    return (intptr_t)value;
}

static void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0)
        CHECK(errno == EINTR);
}

// A system call by the instruction, which no library can define anew.
static long call(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    register long r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = 0;
    register long x5 __asm__("x5") = 0;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
#endif
}

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
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    pthread_t threads[] = {start(ask, 0), start(answer, 0), start(alternate, (void *)0),
                           start(alternate, (void *)1)};
    CHECK(join(threads[0]) == MESSAGES);
    for (int i = 1; i < 4; i++)
        join(threads[i]);
    CHECK(turn == 2 * MESSAGES);
    say("exchanged");
}
