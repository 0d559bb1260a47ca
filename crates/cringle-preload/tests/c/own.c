// Threads that do what only a thread of the system can do.

#include "own.h"
#include <time.h>

static void *wait_in_call(void *number) {
    sem_post(&ready);
    CHECK(read_plainly(pipes[0]) == 'x');
    return (char *)number + 100;
}

static void *wait_in_stdio(void *file) {
    char line[16];
    sem_post(&ready);
    CHECK(fgets(line, sizeof line, file) != 0 && strcmp(line, "hello\n") == 0);
    return (void *)7;
}

static void blocked(void) {
    int lines[2], count = workers + 1;
    CHECK(pipe(lines) == 0);
    pthread_t threads[count], reader = start(wait_in_stdio, fdopen(lines[0], "r"));
    for (intptr_t i = 0; i < count; i++)
        threads[i] = start(wait_in_call, (void *)i);
    for (int i = 0; i < count + 1; i++)
        wait_for(&ready);
    exchange();
    for (int i = 0; i < count; i++)
        CHECK(write(pipes[1], "x", 1) == 1);
    CHECK(write(lines[1], "hello\n", 6) == 6);
    for (int i = 0; i < count; i++)
        CHECK(join(threads[i]) == i + 100);
    CHECK(join(reader) == 7);
    say("joined");
}

static volatile int flag;

static void *spin(void *unused) {
    sem_post(&ready);
    while (!flag)
        ;
    return unused;
}

static void *set_flag(void *count) {
    for (intptr_t i = 0; i < (intptr_t)count; i++)
        wait_for(&ready);
    flag = 1;
    return 0;
}

static void spinning(void) {
    intptr_t count = 2 * workers;
    pthread_t threads[count];
    for (int i = 0; i < count; i++)
        threads[i] = start(spin, (void *)9);
    join(start(set_flag, (void *)count));
    for (int i = 0; i < count; i++)
        CHECK(join(threads[i]) == 9);
    say("joined");
}

static void *wait_in_poll(void *unused) {
    struct pollfd end = {pipes[0], POLLIN, 0};
    sem_post(&ready);
    CHECK(poll(&end, 1, -1) == 1 && end.revents & POLLHUP);
    return unused;
}

static void many(void) {
    enum { COUNT = 1000 };
    static pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++)
        threads[i] = start(wait_in_poll, 0);
    for (int i = 0; i < COUNT; i++)
        wait_for(&ready);
    int of_system = -2; // "." and ".."
    DIR *folder = opendir("/proc/self/task");
    while (readdir(folder) != 0)
        of_system++;
    say(of_system <= workers + 3 ? "few" : of_system > COUNT ? "all" : "some");
    close(pipes[1]);
    for (int i = 0; i < COUNT; i++)
        join(threads[i]);
    say("joined");
}

static sigset_t only(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

#define SIGNALS 20

static void *wait_for_signals(void *unused) {
    sigset_t set = only(SIGUSR1);
    int signal;
    for (int i = 0; i < SIGNALS; i++) {
        CHECK(sigwait(&set, &signal) == 0 && signal == SIGUSR1);
        sem_post(&done);
    }
    return unused;
}

static void waited(void) {
    sigset_t set = only(SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    pthread_t thread = start(wait_for_signals, (void *)3);
    for (int i = 0; i < SIGNALS; i++) {
        CHECK(kill(getpid(), SIGUSR1) == 0);
        wait_for(&done);
    }
    CHECK(join(thread) == 3);
    say("joined");
}

static pthread_t caught_by;
static volatile char *caught_at;

static void catch(int signal) {
    volatile char here = (char)signal;
    caught_by = pthread_self();
    caught_at = &here;
    sem_post(&done);
}

static void *unblock(void *unused) {
    sigset_t set = only(SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, 0);
    sem_post(&ready);
    wait_for(&done);
    CHECK(pthread_equal(caught_by, pthread_self()));
    pthread_attr_t attributes;
    void *stack;
    size_t bytes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &bytes);
    CHECK((char *)caught_at >= (char *)stack && (char *)caught_at < (char *)stack + bytes);
    return unused;
}

static void unblocked(void) {
    sigset_t set = only(SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    signal(SIGUSR1, catch);
    pthread_t thread = start(unblock, (void *)4);
    wait_for(&ready);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(join(thread) == 4);
    say("joined");
}

static sigjmp_buf before_overflow;

static void leave_overflow(int signal) {
    volatile char here = (char)signal;
    caught_at = &here;
    siglongjmp(before_overflow, 1);
}

static int overflow(volatile char *above) {
    volatile char frame[4096];
    frame[0] = *above;
    return *above == 0 ? overflow(frame) + frame[0] : 0;
}

static void *use_stack(void *unused) {
    size_t bytes = 64 << 10;
    char *stack = malloc(bytes);
    stack_t new = {.ss_sp = stack, .ss_size = bytes}, found;
    CHECK(sigaltstack(&new, 0) == 0);
    CHECK(sigaltstack(0, &found) == 0 && found.ss_sp == stack);
    pthread_kill(pthread_self(), SIGUSR1);
    CHECK(caught_at >= stack && caught_at < stack + bytes);
    CHECK(pthread_equal(caught_by, pthread_self()));
    caught_at = 0;
    volatile char top = 0;
    if (sigsetjmp(before_overflow, 1) == 0)
        overflow(&top);
    CHECK(caught_at >= stack && caught_at < stack + bytes);
    return unused;
}

static void stack(void) {
    struct sigaction action = {.sa_handler = catch, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, 0);
    action.sa_handler = leave_overflow;
    sigaction(SIGSEGV, &action, 0);
    CHECK(join(start(use_stack, (void *)5)) == 5);
    say("joined");
}

static __thread intptr_t own;

static void *compute_and_wait(void *number) {
    intptr_t local = (intptr_t)number;
    intptr_t *volatile address = &own;
    char byte;
    own = local;
    for (int round = 0; round < 8; round++, local++, own++) {
        errno = 1000 + (int)local;
        round == 0 ? compute_for_long() : compute();
        CHECK(errno == 1000 + (int)local);
        CHECK(own == local && address == &own);
        CHECK(read(-1, &byte, 1) == -1 && errno == EBADF);
        CHECK(own == local && address == &own);
        errno = 1000 + (int)local;
        usleep(1000);
        CHECK(errno == 1000 + (int)local);
        CHECK(own == local && *address == local);
    }
    return (void *)local;
}

static void computing(void) {
    int count = workers + 2;
    pthread_t threads[count];
    for (intptr_t i = 0; i < count; i++)
        threads[i] = start(compute_and_wait, (void *)(100 * i));
    for (int i = 0; i < count; i++)
        CHECK(join(threads[i]) == 100 * i + 8);
    say("joined");
}

static pthread_key_t key;

static int cleanups;

static void clean_up(void *unused) {
    (void)unused;
    __atomic_fetch_add(&cleanups, 1, __ATOMIC_SEQ_CST);
}

// Becomes a thread of the system for good: it unblocks a signal.
static void leave(void) {
    sigset_t set = only(SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    pthread_sigmask(SIG_UNBLOCK, &set, 0);
}

static void *exit_by_call(void *is_for_good) {
    pthread_setspecific(key, "");
    if (is_for_good)
        leave();
    else
        CHECK(read_plainly(pipes[0]) == 'x');
    pthread_cleanup_push(clean_up, 0);
    pthread_exit((void *)6);
    pthread_cleanup_pop(0);
}

// As a daemon that gives its rights up: it cannot read its own files in /proc then.
static void rightless(void) {
    if (geteuid() != 0) {
        say("only root may change its user");
        _exit(77);
    }
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    blocked();
}

static void exits(void) {
    pthread_key_create(&key, clean_up);
    CHECK(join(start(exit_by_call, "")) == 6);
    int count = workers + 1;
    pthread_t threads[count];
    for (int i = 0; i < count; i++)
        threads[i] = start(exit_by_call, 0);
    exchange();
    for (int i = 0; i < count; i++)
        CHECK(write(pipes[1], "x", 1) == 1);
    for (int i = 0; i < count; i++)
        CHECK(join(threads[i]) == 6);
    CHECK(cleanups == 2 * (count + 1));
    say("joined");
}

static void *pass(void *value) { return value; }

static void *fork_and_return(void *unused) {
    int status;
    leave();
    pid_t child = fork();
    if (child == 0)
        return unused;
    CHECK(waitpid(child, &status, 0) == child);
    dprintf(1, "child %d\n", status);
    child = fork();
    if (child == 0) {
        intptr_t value = join(start(pass, (void *)8));
        _exit(value == 8 ? 42 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    dprintf(1, "child %d\n", WEXITSTATUS(status));
    return unused;
}

// The thread is one of the system for a while, which ends in the child.
static void *compute_and_fork(void *unused) {
    int status;
    compute_for_long();
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 6; i++) {
            compute();
            usleep(1);
        }
        return unused;
    }
    CHECK(waitpid(child, &status, 0) == child);
    dprintf(1, "child %d\n", status);
    return unused;
}

static void forks(void) {
    CHECK(join(start(fork_and_return, (void *)3)) == 3);
    CHECK(join(start(compute_and_fork, (void *)4)) == 4);
    say("joined");
}

#define BYTES 4000

static int ends[2];
static volatile int other_ran;

static void *run_beside(void *unused) {
    sem_post(&ready);
    wait_for(&done);
    other_ran = 1;
    return unused;
}

// Receives what is there, by calls that never have to wait.
static void *receive_all(void *unused) {
    int before = -1;
    char byte;
    pthread_t other = start(run_beside, 0);
    wait_for(&ready);
    sem_post(&done);
    for (int i = 0; i < BYTES; i++) {
        CHECK(recv(ends[1], &byte, 1, MSG_DONTWAIT) == 1);
        if (other_ran && before < 0)
            before = i;
    }
    join(other);
    // Threads may have processors of their own.
    if (getenv("LD_PRELOAD") != 0)
        CHECK(before >= 0 && before < BYTES - 1);
    return unused;
}

// Waits for another thread by calls that have nothing to do with it.
static void *look_at_clock(void *unused) {
    int looks = 0;
    struct timespec now;
    other_ran = 0;
    pthread_t other = start(run_beside, 0);
    wait_for(&ready);
    sem_post(&done);
    for (; !other_ran; looks++)
        clock_gettime(CLOCK_MONOTONIC, &now);
    join(other);
    if (getenv("LD_PRELOAD") != 0)
        CHECK(looks < 20000);
    return unused;
}

static void fair(void) {
    static char bytes[BYTES];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(write(ends[0], bytes, BYTES) == BYTES);
    join(start(receive_all, 0));
    join(start(look_at_clock, 0));
    say("joined");
}

static pthread_mutex_t held[2];

static void *hold(void *mutex) {
    CHECK(pthread_mutex_lock(mutex) == 0);
    int is_recursive = mutex == &held[0];
    CHECK(pthread_mutex_lock(mutex) == (is_recursive ? 0 : EDEADLK));
    sem_post(&ready);
    CHECK(read_plainly(pipes[0]) == 'x');
    CHECK(pthread_mutex_lock(mutex) == (is_recursive ? 0 : EDEADLK));
    for (int i = 0; i < (is_recursive ? 3 : 1); i++)
        CHECK(pthread_mutex_unlock(mutex) == 0);
    CHECK(pthread_mutex_unlock(mutex) == EPERM);
    return mutex;
}

static void *take(void *mutex) {
    CHECK(pthread_mutex_trylock(mutex) == EBUSY && pthread_mutex_unlock(mutex) == EPERM);
    sem_post(&done);
    CHECK(pthread_mutex_lock(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
    return 0;
}

static void mutexes(void) {
    pthread_t threads[4];
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    for (int i = 0; i < 2; i++) {
        pthread_mutexattr_settype(&attributes,
                                  i ? PTHREAD_MUTEX_ERRORCHECK : PTHREAD_MUTEX_RECURSIVE);
        pthread_mutex_init(&held[i], &attributes);
        threads[i] = start(hold, &held[i]);
    }
    wait_for(&ready);
    wait_for(&ready);
    exchange();
    for (int i = 0; i < 2; i++)
        threads[2 + i] = start(take, &held[i]);
    wait_for(&done);
    wait_for(&done);
    CHECK(write(pipes[1], "xx", 2) == 2);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    say("joined");
}

// A ring of the program, as liburing makes it.
struct ring {
    int descriptor;
    char *queues;
    struct io_uring_sqe *entries;
    struct io_uring_params params;
};

static int make_ring(struct ring *ring) {
    memset(ring, 0, sizeof *ring);
    ring->descriptor = (int)call(SYS_io_uring_setup, 4, (long)&ring->params, 0, 0);
    if (ring->descriptor < 0)
        return ring->descriptor;
    int access = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    ring->queues = mmap(0, 4096, access, flags, ring->descriptor, IORING_OFF_SQ_RING);
    ring->entries = mmap(0, 4096, access, flags, ring->descriptor, IORING_OFF_SQES);
    CHECK(ring->queues != MAP_FAILED && ring->entries != MAP_FAILED);
    CHECK(ring->params.features & IORING_FEAT_SINGLE_MMAP);
    return 0;
}

static void *wait_in_ring(void *unused) {
    struct ring ring;
    char byte = 0;
    CHECK(make_ring(&ring) == 0);
    ring.entries[0] = (struct io_uring_sqe){
        .opcode = IORING_OP_READ, .fd = pipes[0], .addr = (uintptr_t)&byte, .len = 1};
    ((unsigned *)(ring.queues + ring.params.sq_off.array))[0] = 0;
    unsigned *tail = (unsigned *)(ring.queues + ring.params.sq_off.tail);
    __atomic_store_n(tail, 1, __ATOMIC_RELEASE);
    sem_post(&ready);
    CHECK(call(SYS_io_uring_enter, ring.descriptor, 1, 0, 0) == 1);
    unsigned *completed = (unsigned *)(ring.queues + ring.params.cq_off.tail);
    long result = call(SYS_io_uring_enter, ring.descriptor, 0, 1, IORING_ENTER_GETEVENTS);
#if defined(__x86_64__)
    CHECK(result == 0);
#else
    while (result == -EINTR)
        result = call(SYS_io_uring_enter, ring.descriptor, 0, 1, IORING_ENTER_GETEVENTS);
#endif
    CHECK(__atomic_load_n(completed, __ATOMIC_ACQUIRE) == 1);
    struct io_uring_cqe *cqe = (void *)(ring.queues + ring.params.cq_off.cqes);
    CHECK(cqe->res == 1 && byte == 'x');
    return unused;
}

static void rings(void) {
    struct ring ring;
    int error = make_ring(&ring), count = workers + 1;
    if (error != 0) {
        say(strerror(-error));
        _exit(77);
    }
    pthread_t threads[count];
    for (int i = 0; i < count; i++)
        threads[i] = start(wait_in_ring, (void *)2);
    for (int i = 0; i < count; i++)
        wait_for(&ready);
    exchange();
    for (int i = 0; i < count; i++)
        CHECK(write(pipes[1], "x", 1) == 1);
    for (int i = 0; i < count; i++)
        CHECK(join(threads[i]) == 2);
    say("joined");
}

int main(int count, char **arguments) {
    static const struct test_case cases[] = {
        {"blocked", blocked}, {"spinning", spinning},   {"many", many},
        {"waited", waited},   {"unblocked", unblocked}, {"stack", stack},
        {"exits", exits},     {"computing", computing}, {"forks", forks},
        {"rings", rings},     {"mutexes", mutexes},   {"fair", fair},
        {"rightless", rightless},
    };
    cpu_set_t processors;
    CHECK(sched_getaffinity(0, sizeof processors, &processors) == 0);
    workers = CPU_COUNT(&processors);
    CHECK(pipe(pipes) == 0 && sem_init(&ready, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    return run_case(cases, sizeof cases / sizeof *cases, count, arguments);
}
