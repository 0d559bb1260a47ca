// What the programs share that start threads: checks, and plain system calls.

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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    if (!(what)) \
        dprintf(1, "line %d: not so: %s (errno %d)\n", __LINE__, #what, errno), _exit(1)

typedef void *routine(void *);

static sem_t ready, done;
static int pipes[2];

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
