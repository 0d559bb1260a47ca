// Threads that hold their worker up where few programs do.

#pragma GCC diagnostic ignored "-Wunused-function"
#include "own.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/un.h>
#include <ucontext.h>

// As many threads as hold all workers up, and one more.
static int count;

static void start_all(pthread_t *threads, routine *routine) {
    for (intptr_t i = 0; i < count; i++)
        threads[i] = start(routine, (void *)i);
    for (int i = 0; i < count; i++)
        wait_for(&ready);
}

static void join_all(pthread_t *threads) {
    for (int i = 0; i < count; i++)
        CHECK(join(threads[i]) == i);
}

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t length;

static int connect_raw(int socket) {
    return (int)call(SYS_connect, socket, (long)&address, length, 0);
}

// The kernel ends a connect with a timeout at each signal.
static void *connect_late(void *number) {
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    struct timeval hour = {3600, 0};
    CHECK(setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &hour, sizeof hour) == 0);
    sem_post(&ready);
    int result = connect_raw(client);
#if !defined(__x86_64__)
    while (result == -EINTR)
        result = connect_raw(client);
#endif
    errno = -result;
    CHECK(result == 0);
    return number;
}

// The threads connect to a listener that has no room for them yet.
static void connects(void) {
    pthread_t threads[count];
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    length = offsetof(struct sockaddr_un, sun_path) +
             snprintf(address.sun_path + 1, 90, "cringle-corners-%d", getpid()) + 1;
    CHECK(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 0) == 0);
    CHECK(connect_raw(socket(AF_UNIX, SOCK_STREAM, 0)) == 0);
    start_all(threads, connect_late);
    exchange();
    for (int i = 0; i < count + 1; i++)
        CHECK(accept(listener, 0, 0) >= 0);
    join_all(threads);
    say("joined");
}

static void close_one_by_one(void) {
    for (int i = 3; i < 1024; i++)
        close(i);
}

static void close_one_by_one_raw(void) {
    for (int i = 3; i < 1024; i++)
        syscall(SYS_close, i);
}

static void close_range_raw(void) { CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0); }

static void close_by_range(void) { CHECK(close_range(3, ~0u, 0) == 0); }

static void close_from(void) { closefrom(3); }

static void close_by_others(void) {
    for (int i = 3; i < 64; i++)
        dup2(1, i), dup3(1, i, 0);
    close_one_by_one();
}

// A program that closes all descriptors, also those that it has not opened.
static void closed(void) {
    static void (*const ways[])(void) = {close_one_by_one, close_one_by_one_raw, close_by_range,
                                         close_range_raw,  close_from,           close_by_others};
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        exchange();
        ways[i]();
    }
    exchange();
    CHECK(close(5000) == -1 && errno == EBADF);
    say("closed");
}

static volatile int is_over;

static void compute_aside(void) {
    sem_post(&ready);
    while (!is_over)
        ;
}

static void wait_aside(void) {
    sem_post(&ready);
    CHECK(read_plainly(pipes[0]) == 'x');
}

// Runs the code on a stack of its own making.
static void run_aside(void (*code)(void)) {
    size_t bytes = 64 << 10;
    ucontext_t here, aside;
    CHECK(getcontext(&aside) == 0);
    aside.uc_stack.ss_sp = malloc(bytes);
    aside.uc_stack.ss_size = bytes;
    aside.uc_link = &here;
    makecontext(&aside, code, 0);
    CHECK(swapcontext(&here, &aside) == 0);
    free(aside.uc_stack.ss_sp);
}

static void *run_coroutine(void *number) {
    run_aside((intptr_t)number % 2 ? compute_aside : wait_aside);
    return number;
}

// Releases threads that compute, and such that wait in a pipe.
static void release(int number) {
    is_over = 1;
    for (int i = 0; i < number; i++)
        CHECK(write(pipes[1], "x", 1) == 1);
}

static void coroutines(void) {
    pthread_t threads[count];
    start_all(threads, run_coroutine);
    exchange();
    release(count);
    join_all(threads);
    say("joined");
}

static pthread_key_t computes, waits;

static void compute_last(void *unused) {
    (void)unused;
    compute_aside();
}

static void wait_last(void *unused) {
    (void)unused;
    wait_aside();
}

static void *end_late(void *number) {
    pthread_setspecific((intptr_t)number % 2 ? computes : waits, "");
    return number;
}

static void destructors(void) {
    pthread_t threads[count];
    CHECK(pthread_key_create(&computes, compute_last) == 0);
    CHECK(pthread_key_create(&waits, wait_last) == 0);
    start_all(threads, end_late);
    exchange();
    release(count);
    join_all(threads);
    exchange();
    say("joined");
}

static void *trace_child(void *number) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        // Until the parent has ended.
        close(pipes[1]);
        while (read(pipes[0], &status, 1) != 0)
            ;
        _exit(0);
    }
    CHECK(ptrace(PTRACE_SEIZE, child, 0, 0) == 0);
    // Others run on the worker, which is not the tracer, and this thread waits for the child.
    sem_post(&ready);
    wait_for(&done);
    for (int i = 0; i < 20; i++) {
        CHECK(ptrace(PTRACE_INTERRUPT, child, 0, 0) == 0);
        CHECK(waitpid(child, &status, __WALL) == child && WIFSTOPPED(status));
        CHECK(ptrace(PTRACE_CONT, child, 0, 0) == 0);
    }
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, __WALL) == child && WIFSIGNALED(status));
    return number;
}

static void traces(void) {
    pthread_t threads[count];
    start_all(threads, trace_child);
    for (int i = 0; i < count; i++)
        sem_post(&done);
    join_all(threads);
    say("joined");
}

static atomic_bool has_seen_enough;

// Sends a message to itself, and receives it.
static void exchange_one(const int *ends) {
    char byte = 'x';
    CHECK(send(ends[0], &byte, 1, 0) == 1 && recv(ends[1], &byte, 1, 0) == 1);
}

// Computes between messages, so that its worker calls for help.
static void *exchange_always(void *unused) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    while (!has_seen_enough) {
        exchange_one(ends);
        for (volatile int step = 0; step < 20000; step++)
            ;
    }
    return unused;
}

// Exchanges one message in each turn of its worker, as if its peer were on another core.
static void *exchange_seldom(void *unused) {
    int ends[2], changes = 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    long worker = call(SYS_gettid, 0, 0, 0, 0);
    for (int turns = 0; turns < 40000 && changes < 4; turns++) {
        exchange_one(ends);
        usleep(1);
        long now = call(SYS_gettid, 0, 0, 0, 0);
        changes += now != worker;
        worker = now;
    }
    has_seen_enough = true;
    CHECK(changes == 4);
    return unused;
}

static void far(void) {
    pthread_t threads[9];
    for (int i = 0; i < 9; i++)
        threads[i] = start(i == 0 ? exchange_seldom : exchange_always, 0);
    for (int i = 0; i < 9; i++)
        join(threads[i]);
    say("moved");
}

int main(int arguments_count, char **arguments) {
    static const struct test_case cases[] = {{"connects", connects}, {"closed", closed},
                                             {"coroutines", coroutines},
                                             {"destructors", destructors},
                                             {"traces", traces},
                                             {"far", far}};
    cpu_set_t processors;
    CHECK(sched_getaffinity(0, sizeof processors, &processors) == 0);
    workers = CPU_COUNT(&processors);
    count = workers + 1;
    CHECK(pipe(pipes) == 0 && sem_init(&ready, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    return run_case(cases, sizeof cases / sizeof *cases, arguments_count, arguments);
}
