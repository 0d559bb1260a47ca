/* What the functions of threads do; the first argument names the case. It exits with 0 if all is
   right, and else with a line that is not so. */

#include "threads.h"

#include <spawn.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/resource.h>

extern char **environ;

static atomic_int handled, begun, cleaned;
static pthread_t handled_on;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void handle(int signal) {
    (void)signal;
    handled_on = pthread_self();
    handled++;
}

static void handle_usr1(void) {
    struct sigaction action = {.sa_handler = handle};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

static sigset_t only(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

static void await_begin(void) {
    while (begun == 0)
        sched_yield();
}

static void note_cleaned(void *unused) {
    (void)unused;
    cleaned++;
}

/* Becomes a thread of the system where threads are fibers. */
static void need_own_thread(void) { CHECK(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0); }

// Signals.

static void *compute(void *unused) {
    begun = 1;
    while (handled == 0)
        ;
    CHECK(pthread_equal(handled_on, pthread_self()));
    return unused;
}

static void *read_by_instruction(void *unused) {
    char byte;
    begun = 1;
    long result = call(SYS_read, pipes[0], (long)&byte, 1, 0);
    CHECK(result == 1 || result == -EINTR);
    CHECK(handled == 1 && pthread_equal(handled_on, pthread_self()));
    return unused;
}

static void handle_and_write(int signal) {
    handle(signal);
    CHECK(write(pipes[1], "x", 1) == 1);
}

static void *block_signal(void *unused) {
    sigset_t set = only(SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(sem_post(&ready) == 0);
    CHECK(sem_wait(&done) == 0);
    CHECK(handled == 0);
    handle_usr1();
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    CHECK(handled == 1 && pthread_equal(handled_on, pthread_self()));
    return unused;
}

static void *wait_for_signal(void *unused) {
    begun = 1;
    CHECK(pause() == -1 && errno == EINTR && handled == 1);
    return unused;
}

static void *lock_mutex(void *unused) {
    begun = 1;
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
    CHECK(handled == 1 && pthread_equal(handled_on, pthread_self()));
    return unused;
}

static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;

static void *lock_shared(void *unused) {
    begun = 1;
    CHECK(pthread_rwlock_rdlock(&shared) == 0 && pthread_rwlock_unlock(&shared) == 0);
    CHECK(handled == 1 && pthread_equal(handled_on, pthread_self()));
    return unused;
}

static void signals(void) {
    handle_usr1();
    pthread_t thread = start(compute, NULL);
    await_begin();
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    join(thread);

    begun = handled = 0;
    struct sigaction action = {.sa_handler = handle_and_write};
    CHECK(pipe(pipes) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    thread = start(read_by_instruction, NULL);
    await_begin();
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    join(thread);

    handled = 0;
    CHECK(signal(SIGUSR1, SIG_DFL) != SIG_ERR);
    thread = start(block_signal, NULL);
    wait_for(&ready);
    CHECK(pthread_kill(thread, SIGUSR1) == 0 && sem_post(&done) == 0);
    join(thread);

    /* As collectors of garbage stop the threads of a program, also those that wait for a lock. */
    handle_usr1();
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_rwlock_wrlock(&shared) == 0);
    routine *locks[] = {lock_mutex, lock_shared};
    for (int i = 0; i < 2; i++) {
        begun = handled = 0;
        thread = start(locks[i], NULL);
        await_begin();
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        while (handled == 0)
            sched_yield();
        CHECK(pthread_mutex_unlock(&mutex) == 0 && pthread_rwlock_unlock(&shared) == 0);
        join(thread);
        CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_rwlock_wrlock(&shared) == 0);
    }

    begun = handled = 0;
    thread = start(wait_for_signal, NULL);
    await_begin();
    /* A thread waits for longer than a computing one keeps its processor. */
    usleep(60000);
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    join(thread);
}

// Cancellation.

static void *read_on_own_thread(void *unused) {
    char byte;
    need_own_thread();
    pthread_cleanup_push(note_cleaned, NULL);
    begun = 1;
    CHECK(read(pipes[0], &byte, 1) == -2);
    pthread_cleanup_pop(0);
    return unused;
}

static void unlock(void *unused) {
    note_cleaned(unused);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void *wait_on_own_thread(void *unused) {
    need_own_thread();
    CHECK(pthread_mutex_lock(&mutex) == 0);
    pthread_cleanup_push(unlock, NULL);
    begun = 1;
    while (1)
        CHECK(pthread_cond_wait(&condition, &mutex) == 0);
    pthread_cleanup_pop(0);
    return unused;
}

static void *wait_and_pause(void *unused) {
    pthread_cleanup_push(note_cleaned, NULL);
    begun = 1;
    while (1)
        pause();
    pthread_cleanup_pop(0);
    return unused;
}

static void *spin_for_ever(void *unused) {
    int before;
    pthread_cleanup_push(note_cleaned, NULL);
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before) == 0);
    CHECK(before == PTHREAD_CANCEL_DEFERRED);
    begun = 1;
    while (1)
        ;
    pthread_cleanup_pop(0);
    return unused;
}

static void *refuse(void *unused) {
    int before;
    char byte;
    need_own_thread();
    pthread_cleanup_push(note_cleaned, NULL);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0);
    CHECK(before == PTHREAD_CANCEL_ENABLE);
    begun = 1;
    wait_for(&done);
    CHECK(read(pipes[0], &byte, 1) == 1);
    pthread_testcancel();
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before) == 0);
    CHECK(before == PTHREAD_CANCEL_DISABLE);
    CHECK(cleaned == 0);
    pthread_testcancel();
    CHECK(0);
    pthread_cleanup_pop(0);
    return unused;
}

static void cancel(routine *routine, int posts) {
    begun = cleaned = 0;
    pthread_t thread = start(routine, NULL);
    await_begin();
    CHECK(pthread_cancel(thread) == 0);
    if (posts)
        CHECK(write(pipes[1], "x", 1) == 1 && sem_post(&done) == 0);
    CHECK(join(thread) == (intptr_t)PTHREAD_CANCELED && cleaned == 1);
}

static void cancels(void) {
    CHECK(pipe(pipes) == 0);
    for (int i = 0; i < 3; i++) {
        cancel(read_on_own_thread, 0);
        cancel(wait_on_own_thread, 0);
        CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
        cancel(wait_and_pause, 0);
        cancel(refuse, 1);
    }
    cancel(spin_for_ever, 0);
    cancel(spin_for_ever, 0);
}

// Children, which have the mask of their thread.

static int blocks_only(int signal) {
    sigset_t set;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0);
    for (int other = 1; other < 32; other++)
        if (sigismember(&set, other) != (other == signal))
            return 0;
    return 1;
}

static void check_child(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *start_children(void *program) {
    char command[8300], *shown = program;
    sigset_t set = only(SIGUSR2), blocked = only(SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(!blocks_only(SIGUSR1));
    check_child(child);
    char *arguments[] = {program, "blocks", "10", NULL};
    CHECK(posix_spawn(&child, program, NULL, NULL, arguments, environ) == 0);
    check_child(child);
    posix_spawnattr_t attributes;
    CHECK(posix_spawnattr_init(&attributes) == 0);
    CHECK(posix_spawnattr_setsigmask(&attributes, &set) == 0);
    CHECK(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) == 0);
    arguments[2] = "12";
    CHECK(posix_spawnp(&child, program, NULL, &attributes, arguments, environ) == 0);
    check_child(child);
    /* Some shells clear their mask. */
    snprintf(command, sizeof command, "'%s' blocks 10 || exec '%s' blocks 0", shown, shown);
    FILE *out = popen(command, "r");
    CHECK(out != NULL && pclose(out) == 0);
    CHECK(system(command) == 0);
    CHECK(execv(program, (char *[]){program, "executed", NULL}) == 0);
    return NULL;
}

// Attributes and times.

static void *size_of_stack(void *unused) {
    pthread_attr_t attributes;
    size_t size;
    (void)unused;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstacksize(&attributes, &size) == 0);
    return (void *)size;
}

static void *time_out(void *unused) {
    struct timespec before = {.tv_sec = -1};
    CHECK(pthread_mutex_timedlock(&mutex, &before) == ETIMEDOUT);
    CHECK(sem_timedwait(&ready, &before) == -1 && errno == ETIMEDOUT);
    return unused;
}

static void attributes(void) {
    pthread_attr_t attributes;
    CHECK((size_t)join(start(size_of_stack, NULL)) < 32 << 20);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 32 << 20) == 0);
    CHECK(pthread_setattr_default_np(&attributes) == 0);
    CHECK((size_t)join(start(size_of_stack, NULL)) >= 32 << 20);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    join(start(time_out, NULL));
}

static void keys(void) {
    pthread_key_t key;
    while (pthread_key_create(&key, NULL) == 0)
        ;
    CHECK((size_t)join(start(size_of_stack, NULL)) > 0);
}

// Where no thread can be a fiber.

static void cannot_test(const char *what) {
    dprintf(1, "%s\n", what);
    _exit(77);
}

static void *compute_till_handled(void *unused) {
    sem_post(&done);
    while (!handled)
        ;
    return unused;
}

// Others run beside threads that compute.
static void without_proc(void) {
    enum { COUNT = 8 };
    pthread_t threads[COUNT];
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/proc", "tmpfs", 0, NULL) != 0)
        cannot_test("/proc cannot be hidden");
    for (int i = 0; i < COUNT; i++)
        threads[i] = start(compute_till_handled, NULL);
    for (int i = 0; i < COUNT; i++)
        wait_for(&done);
    handled = 1;
    for (int i = 0; i < COUNT; i++)
        join(threads[i]);
}

// A user who may have one thread more.
static void limited(void) {
    struct rlimit two = {2, 2};
    uid_t user = 1000000000 + getpid();
    pthread_t thread;
    if (geteuid() != 0)
        cannot_test("only root may change its user");
    CHECK(setrlimit(RLIMIT_NPROC, &two) == 0 && setuid(user) == 0);
    handled = 1;
    int error = pthread_create(&thread, NULL, compute_till_handled, NULL);
    // The thread that the library has tried may not have ended.
    CHECK(error == 0 || error == EAGAIN);
    if (error == 0)
        join(thread);
}

// Locks.

static int turn;

/* Waits for a condition, now as a fiber, now as a thread of the system, and gives the mutex to the
   other thread each time. */
static void *take_turns(void *me) {
    for (int round = 0; round < 20000; round++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        while (turn != (me != NULL))
            CHECK(pthread_cond_wait(&condition, &mutex) == 0);
        turn = !turn;
        CHECK(pthread_cond_signal(&condition) == 0);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    return NULL;
}

static atomic_int served;

/* Has the mutex nearly always, and never while another thread could take it. */
static void *hold_on(void *unused) {
    begun = 1;
    while (served < 4) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        usleep(100);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    return unused;
}

static void *lock_once(void *unused) {
    await_begin();
    CHECK(pthread_mutex_lock(&mutex) == 0);
    served++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return unused;
}

static void starve(void) {
    pthread_t threads[6];
    for (int n = 0; n < 6; n++)
        threads[n] = start(n < 2 ? hold_on : lock_once, NULL);
    for (int n = 0; n < 6; n++)
        join(threads[n]);
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "";
    CHECK(sem_init(&ready, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    if (strcmp(name, "signals") == 0)
        signals();
    else if (strcmp(name, "cancels") == 0)
        cancels();
    else if (strcmp(name, "children") == 0)
        join(start(start_children, arguments[0]));
    else if (strcmp(name, "blocks") == 0)
        return !blocks_only(atoi(arguments[2]));
    else if (strcmp(name, "executed") == 0) {
        CHECK(blocks_only(SIGUSR1));
    } else if (strcmp(name, "attributes") == 0)
        attributes();
    else if (strcmp(name, "keys") == 0)
        keys();
    else if (strcmp(name, "turns") == 0) {
        pthread_t other = start(take_turns, "other");
        take_turns(NULL);
        join(other);
    } else if (strcmp(name, "starving") == 0)
        starve();
    else if (strcmp(name, "without-proc") == 0)
        without_proc();
    else if (strcmp(name, "limited") == 0)
        limited();
    else
        return 2;
    say("done");
    return 0;
}
