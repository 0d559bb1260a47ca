// Threads that change what the kernel keeps of a thread, or what it lets a thread own.

#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "own.h"
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define OTHERS 8

// What a thread has of the kernel's state.
struct state {
    int policy, priority, slack, privileges, cores, own_core;
    void *robust_list;
    char folder[4096];
};

static struct state state(void) {
    struct state found;
    cpu_set_t cores;
    size_t bytes;
    memset(&found, 0, sizeof found);
    CHECK(sched_getaffinity(0, sizeof cores, &cores) == 0);
    found.cores = CPU_COUNT(&cores);
    found.policy = sched_getscheduler(0);
    found.priority = getpriority(PRIO_PROCESS, 0);
    found.slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    found.privileges = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    CHECK(syscall(SYS_get_robust_list, 0, &found.robust_list, &bytes) == 0);
    CHECK(getcwd(found.folder, sizeof found.folder) != 0);
    return found;
}

static struct state before;
static struct robust_list_head list;

static void *look(void *unused) {
    struct state found = state();
    CHECK(found.robust_list != &list);
    found.robust_list = before.robust_list;
    CHECK(memcmp(&found, &before, sizeof found) == 0);
    return unused;
}

static void look_from_others(void) {
    pthread_t threads[OTHERS];
    for (int i = 0; i < OTHERS; i++)
        threads[i] = start(look, 0);
    for (int i = 0; i < OTHERS; i++)
        join(threads[i]);
}

// Each changes one thing, while and after which other threads have what they had.
static cpu_set_t one_core(void) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(sched_getcpu(), &cores);
    return cores;
}

static void set_cores(void) {
    cpu_set_t cores = one_core(), found;
    CHECK(sched_setaffinity(0, sizeof cores, &cores) == 0);
    CHECK(pthread_getaffinity_np(pthread_self(), sizeof found, &found) == 0);
    CHECK(CPU_EQUAL(&cores, &found) && state().cores == 1);
}

static void set_cores_by_handle(void) {
    cpu_set_t cores = one_core(), all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof cores, &cores) == 0);
    CHECK(state().cores == 1);
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof all, &all) == 0);
    CHECK(state().cores == before.cores);
}

static void set_cores_by_number(void) {
    cpu_set_t cores = one_core();
    CHECK(syscall(SYS_sched_setaffinity, gettid(), sizeof cores, &cores) == 0);
    CHECK(state().cores == 1);
}

static void set_policy(void) {
    struct sched_param parameters = {0};
    int policy;
    CHECK(pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters) == 0);
    CHECK(pthread_getschedparam(pthread_self(), &policy, &parameters) == 0);
    CHECK(policy == SCHED_BATCH && state().policy == SCHED_BATCH);
}

static void set_policy_by_number(void) {
    struct sched_param parameters = {0};
    CHECK(sched_setscheduler(gettid(), SCHED_IDLE, &parameters) == 0);
    CHECK(state().policy == SCHED_IDLE);
}

// 19 is the lowest priority.
static int lower(void) { return before.priority < 19 ? before.priority + 1 : 19; }

static void set_priority(void) {
    CHECK(setpriority(PRIO_PROCESS, gettid(), lower()) == 0 && state().priority == lower());
}

static void be_nice(void) { CHECK(nice(1) == lower() && state().priority == lower()); }

static void set_slack(void) {
    CHECK(prctl(PR_SET_TIMERSLACK, 77777, 0, 0, 0) == 0 && state().slack == 77777);
}

static void set_privileges(void) {
    CHECK(syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && state().privileges == 1);
}

static void set_folder(void) {
    CHECK(unshare(CLONE_FS) == 0 && chdir("/proc") == 0);
    CHECK(strcmp(state().folder, "/proc") == 0);
}

// A robust lock of the program's own.
static struct {
    struct robust_list entry;
    uint32_t word;
} lock;

static void set_list(void) {
    list.list.next = &lock.entry;
    list.futex_offset = (char *)&lock.word - (char *)&lock.entry;
    lock.entry.next = &list.list;
    CHECK(syscall(SYS_set_robust_list, &list, sizeof list) == 0);
    CHECK(state().robust_list == &list);
    lock.word = gettid();
}

static void *change(void *setter) {
    ((void (*)(void))setter)();
    sem_post(&ready);
    wait_for(&done);
    return setter;
}

static void states(void) {
    static void (*const setters[])(void) = {
        set_cores,    set_cores_by_handle, set_cores_by_number, set_policy, set_policy_by_number,
        set_priority, be_nice,             set_slack,           set_folder, set_privileges,
        set_list,
    };
    before = state();
    for (unsigned i = 0; i < sizeof setters / sizeof *setters; i++) {
        pthread_t thread = start(change, setters[i]);
        wait_for(&ready);
        look_from_others();
        sem_post(&done);
        CHECK(join(thread) == (intptr_t)setters[i]);
        look_from_others();
    }
    CHECK(lock.word == FUTEX_OWNER_DIED);
    say("joined");
}

// In memory that processes share.
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int count;
} *shared;

static pthread_cond_t plain_condition = PTHREAD_COND_INITIALIZER;

enum { INHERIT = 1, ROBUST = 2, SHARED = 4, CHECKED = 8, RECURSIVE = 16 };

static void make(int kind) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if (kind & INHERIT)
        CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
    if (kind & ROBUST)
        CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    if (kind & SHARED)
        CHECK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    if (kind & CHECKED)
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    if (kind & RECURSIVE)
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    CHECK(pthread_mutex_init(&shared->mutex, &attributes) == 0);
    shared->count = 0;
}

static void *hold(void *mutex) {
    CHECK(pthread_mutex_lock(mutex) == 0);
    sem_post(&ready);
    wait_for(&done);
    CHECK(pthread_mutex_unlock(mutex) == 0);
    return mutex;
}

static void *try_held(void *mutex) {
    struct timespec past = {1, 0};
    CHECK(pthread_mutex_trylock(mutex) == EBUSY);
    CHECK(pthread_mutex_timedlock(mutex, &past) == ETIMEDOUT);
    return mutex;
}

static void *hold_until_end(void *mutex) {
    CHECK(pthread_mutex_lock(mutex) == 0);
    return mutex;
}

static void *repair(void *mutex) {
    CHECK(pthread_mutex_trylock(mutex) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(mutex) == 0);
    CHECK(pthread_mutex_unlock(mutex) == 0);
    CHECK(pthread_mutex_lock(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
    return mutex;
}

#define ROUNDS 200

static void *count_up(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&shared->mutex) == 0);
        int count = shared->count;
        if (i % 10 == 0)
            sched_yield();
        shared->count = count + 1;
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    }
    return unused;
}

static void *alternate_under(void *parity) {
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        while (shared->count % 2 != (intptr_t)parity)
            CHECK(pthread_cond_wait(&plain_condition, &shared->mutex) == 0);
        shared->count++;
        pthread_cond_broadcast(&plain_condition);
    }
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    return parity;
}

static void of_both(routine *routine) {
    pthread_t threads[] = {start(routine, (void *)0), start(routine, (void *)1)};
    for (int i = 0; i < 2; i++)
        CHECK(join(threads[i]) == i);
    CHECK(shared->count == 2 * ROUNDS);
    shared->count = 0;
}

static void *lock_twice(void *kind) {
    int again = (intptr_t)kind & RECURSIVE ? 0 : EDEADLK;
    // Another lock that knows its owner is held meanwhile.
    static pthread_mutex_t other = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    CHECK(pthread_mutex_lock(&other) == 0);
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    CHECK(pthread_mutex_lock(&other) == 0);
    CHECK(pthread_mutex_lock(&shared->mutex) == again);
    for (int i = 0; i < (again == 0 ? 2 : 1); i++)
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    CHECK(pthread_mutex_unlock(&shared->mutex) == EPERM);
    CHECK(pthread_mutex_unlock(&other) == 0 && pthread_mutex_unlock(&other) == 0);
    CHECK(pthread_mutex_unlock(&other) == EPERM);
    return kind;
}

static void owners(void) {
    static const int kinds[] = {
        INHERIT,
        ROBUST,
        INHERIT | ROBUST,
        SHARED | CHECKED,
        SHARED | RECURSIVE,
        INHERIT | CHECKED,
        ROBUST | RECURSIVE,
        INHERIT | ROBUST | RECURSIVE | SHARED,
    };
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make(kinds[i]);
        pthread_t holder = start(hold, &shared->mutex);
        wait_for(&ready);
        join(start(try_held, &shared->mutex));
        CHECK(pthread_mutex_trylock(&shared->mutex) == EBUSY);
        sem_post(&done);
        join(holder);
        of_both(count_up);
        of_both(alternate_under);
        if (kinds[i] & (CHECKED | RECURSIVE))
            join(start(lock_twice, (void *)(intptr_t)kinds[i]));
        if (kinds[i] & ROBUST) {
            join(start(hold_until_end, &shared->mutex));
            join(start(repair, &shared->mutex));
        }
        CHECK(pthread_mutex_destroy(&shared->mutex) == 0);
    }
    say("joined");
}

static void *take_turns(void *parity) {
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        while (shared->count % 2 != (intptr_t)parity)
            CHECK(pthread_cond_wait(&shared->changed, &shared->mutex) == 0);
        shared->count++;
        pthread_cond_broadcast(&shared->changed);
    }
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    return parity;
}

// Each process gets its number.
static void in_both_processes(routine *routine) {
    int status;
    shared->count = 0;
    pid_t child = fork();
    if (child == 0) {
        join(start(routine, (void *)1));
        _exit(0);
    }
    join(start(routine, (void *)0));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(shared->count == 2 * ROUNDS);
}

static void *end_process(void *unused) {
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    _exit(0);
    return unused;
}

static void processes(void) {
    static const int kinds[] = {0, CHECKED, ROBUST, INHERIT | ROBUST};
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_cond_init(&shared->changed, &attributes) == 0);
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make(SHARED | kinds[i]);
        in_both_processes(count_up);
        in_both_processes(take_turns);
        if (kinds[i] & ROBUST) {
            int status;
            pid_t child = fork();
            if (child == 0)
                join(start(end_process, 0));
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            join(start(repair, &shared->mutex));
        }
    }
    say("joined");
}

static pthread_t caught_by;

static void catch(int signal) {
    (void)signal;
    caught_by = pthread_self();
}

static sigset_t with(int signal) {
    sigset_t set;
    CHECK(pthread_sigmask(SIG_BLOCK, 0, &set) == 0);
    if (signal)
        sigaddset(&set, signal);
    return set;
}

typedef int wait_with(const sigset_t *mask);

static int by_ppoll(const sigset_t *mask) {
    struct pollfd end = {pipes[0], POLLIN, 0};
    return ppoll(&end, 1, 0, mask);
}

static int by_pselect(const sigset_t *mask) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    return pselect(pipes[0] + 1, &set, 0, 0, 0, mask);
}

static int by_epoll(const sigset_t *mask) {
    struct epoll_event event = {.events = EPOLLIN};
    int instance = epoll_create1(0);
    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, pipes[0], &event) == 0);
    int result = epoll_pwait(instance, &event, 1, -1, mask);
    int error = errno;
    close(instance);
    errno = error;
    return result;
}

static wait_with *const waits[] = {by_ppoll, by_pselect, by_epoll};

// Becomes a thread of the system by the wait itself, for a signal that main sends.
static void *wait_for_kill(void *wait) {
    sigset_t blocked = with(SIGUSR1), unchanged = blocked;
    sigdelset(&unchanged, SIGUSR1);
    sem_post(&ready);
    CHECK(((wait_with *)wait)(&unchanged) == -1 && errno == EINTR);
    CHECK(pthread_equal(caught_by, pthread_self()));
    caught_by = 0;
    return wait;
}

static void killed(void) {
    sigset_t blocked = with(SIGUSR1);
    CHECK(pthread_sigmask(SIG_SETMASK, &blocked, 0) == 0);
    signal(SIGUSR1, catch);
    for (int i = 0; i < 3; i++) {
        pthread_t thread = start(wait_for_kill, waits[i]);
        wait_for(&ready);
        CHECK(kill(getpid(), SIGUSR1) == 0);
        CHECK(join(thread) == (intptr_t)waits[i]);
    }
    say("joined");
}

static void *wait_unchanged(void *wait) {
    sigset_t mask = with(0), more = with(SIGUSR2);
    sem_post(&ready);
    CHECK(((wait_with *)wait)(&mask) == 1 && ((wait_with *)wait)(&more) == 1);
    return wait;
}

static void unchanged(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = start(wait_unchanged, waits[i]);
    for (int i = 0; i < 3; i++)
        wait_for(&ready);
    CHECK(write(pipes[1], "x", 1) == 1);
    for (int i = 0; i < 3; i++)
        CHECK(join(threads[i]) == (intptr_t)waits[i]);
    say("joined");
}

static void *leave_raw(void *unused) {
    sem_post(&ready);
    syscall(SYS_exit, 0);
    return unused;
}

static void ended(void) {
    for (int i = 0; i < OTHERS; i++)
        join(start(leave_raw, 0));
    look_from_others();
    say("joined");
}

static void *look_at_rights(void *expected) {
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == (intptr_t)expected);
    return 0;
}

// Later threads have the rights that `main` has left itself.
static void rights(void) {
    join(start(look_at_rights, (void *)0));
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    join(start(look_at_rights, (void *)1));
    say("joined");
}

int main(int count, char **arguments) {
    static const struct test_case cases[] = {
        {"states", states}, {"owners", owners},       {"processes", processes},
        {"killed", killed}, {"unchanged", unchanged}, {"ended", ended},
        {"rights", rights},
    };
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && pipe(pipes) == 0);
    CHECK(sem_init(&ready, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    before = state();
    return run_case(cases, sizeof cases / sizeof *cases, count, arguments);
}
