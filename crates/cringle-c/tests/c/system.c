/* Signals, limits, filters, and functions of libc that fail. */
#include "check.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static unsigned char memory[PAGE];

static atomic_int caught;
static pthread_t catcher;

static void note_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&caught, pthread_equal(pthread_self(), catcher) ? 1 : 1000);
}

/* Each thread but the first blocks the signals that a program may send. */
static int threads_that_block_signals(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char path[300], line[256];
        unsigned long long blocked = 0;
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = fopen(path, "r");
        int is_kernels = 0;
        while (status && fgets(line, sizeof line, status)) {
            is_kernels |= strncmp(line, "Name:\tiou-", 10) == 0;
            sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (status)
            fclose(status);
        /* A thread of the ring never runs the program's code. */
        if (is_kernels)
            continue;
        CHECK(blocked & 1ull << (SIGUSR1 - 1));
        CHECK(blocked & 1ull << (SIGINT - 1));
        CHECK(blocked & 1ull << (SIGALRM - 1));
        CHECK(blocked & 1ull << (SIGCHLD - 1));
        /* While one of these is blocked, the kernel ends the process. */
        CHECK(!(blocked & 1ull << (SIGSEGV - 1)));
        CHECK(!(blocked & 1ull << (SIGBUS - 1)));
        count++;
    }
    closedir(tasks);
    return count;
}

static void signals_stay_those_of_the_program(void)
{
    struct sigaction action = { .sa_handler = note_signal }, found;
    sigset_t before, after;
    catcher = pthread_self();
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    struct sigaction faults[2];
    sigaction(SIGSEGV, NULL, &faults[0]);
    sigaction(SIGBUS, NULL, &faults[1]);
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct cringle_params params = { .workers = 2 };
    cringle_io io = opened(&params);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    CHECK_EQ(memcmp(&before, &after, sizeof before), 0);
    struct cringle_op one = op(CRINGLE_READ, numbered_file(O_RDONLY), memory, PAGE, 0);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(kill(getpid(), SIGUSR1), 0);
        CHECK_EQ(result_of(io, one), PAGE);
    }
    CHECK(atomic_load(&caught) > 0);
    CHECK(atomic_load(&caught) < 1001);
    CHECK(threads_that_block_signals() >= 2);
    sigaction(SIGSEGV, NULL, &found);
    CHECK(found.sa_sigaction == faults[0].sa_sigaction);
    sigaction(SIGBUS, NULL, &found);
    CHECK(found.sa_sigaction == faults[1].sa_sigaction);
    CHECK_EQ(cringle_close(io), 0);
}

static void spawn_and_end_child(void *arg, int failed)
{
    char *const command[] = { "sleep", "1000", NULL };
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t child;
    int status;
    (void)failed;
    sigemptyset(&none);
    CHECK_EQ(posix_spawnattr_init(&attributes), 0);
    CHECK_EQ(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK), 0);
    CHECK_EQ(posix_spawnattr_setsigmask(&attributes, &none), 0);
    CHECK_EQ(posix_spawnp(&child, "sleep", NULL, &attributes, command, environ), 0);
    CHECK_EQ(kill(child, SIGTERM), 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGTERM);
    count_call(arg, 0);
}

/* Without its flag, the child would block the signal. */
static void callback_spawns_a_child_that_signals_end(void)
{
    cringle_io io = opened(NULL);
    struct called called;
    sem_init(&called.posted, 0, 0);
    CHECK_EQ(cringle_submit_cb(io, NULL, 0, NULL, spawn_and_end_child, &called, NULL), 0);
    wait_for_post(&called.posted);
    CHECK_EQ(cringle_close(io), 0);
}

static void limit_descriptors(rlim_t more)
{
    int next = dup(0);
    struct rlimit limit = { (rlim_t)next + more, (rlim_t)next + more };
    close(next);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void few_descriptors_are_an_error_with_words(void)
{
    cringle_io io = 0, first = opened(NULL);
    struct cringle_op one = op(CRINGLE_READ, numbered_file(O_RDONLY), memory, PAGE, 0);
    int32_t number;
    cringle_queue queue;
    CHECK_EQ(cringle_queue_open(first, 1, &queue), 0);
    limit_descriptors(0);
    CHECK_EQ(cringle_open(NULL, &io), -EMFILE);
    check_last_error("open files");
    CHECK_EQ(io, 0);
    CHECK_EQ(cringle_register_files(first, &one.fd, 1, &number), -EMFILE);
    check_last_error("cannot be duplicated");
    CHECK_EQ(cringle_queue_fd(first, queue), -EMFILE);
    check_last_error("ulimit -n");
    /* What is open goes on. */
    CHECK_EQ(result_of(first, one), PAGE);
    CHECK_EQ(cringle_close(first), 0);
    CHECK_EQ(cringle_open(NULL, &io), 0);
    CHECK_EQ(result_of(io, one), PAGE);
    CHECK_EQ(cringle_close(io), 0);
}

/* Each limit: an engine that works, or an error. */
static void open_with_any_number_of_descriptors_works_or_fails(void)
{
    struct cringle_op one = op(CRINGLE_READ, numbered_file(O_RDONLY), memory, PAGE, 0);
    struct cringle_params params = { .workers = 3 };
    int failed = 0;
    for (rlim_t more = 0; more < 12; more++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            cringle_io io;
            limit_descriptors(more);
            int result = cringle_open(&params, &io);
            if (result != 0) {
                CHECK_EQ(result, -EMFILE);
                _exit(7);
            }
            CHECK_EQ(result_of(io, one), PAGE);
            CHECK_EQ(cringle_close(io), 0);
            _exit(0);
        }
        int status;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 7);
        failed += WEXITSTATUS(status) == 7;
        CHECK(more < 11 || WEXITSTATUS(status) == 0);
    }
    CHECK(failed > 0);
}

/* Refuses `io_uring_setup` with EPERM, for this thread and those that it starts. */
static void refuse_rings(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void denied_rings_are_replaced_and_explained(void)
{
    char why[1024];
    cringle_io io = 0;
    struct cringle_params params = { .driver = CRINGLE_DRIVER_URING };
    unsetenv("CRINGLE_DRIVER");
    refuse_rings();
    CHECK_EQ(cringle_open(&params, &io), -EPERM);
    check_last_error("seccomp");
    io = opened(NULL);
    CHECK_EQ(cringle_driver(io, why, sizeof why), CRINGLE_DRIVER_EPOLL);
    CHECK(strstr(why, "seccomp") != NULL);
    struct cringle_op one = op(CRINGLE_READ, numbered_file(O_RDONLY | O_DIRECT), NULL, PAGE, PAGE);
    one.buf = aligned_alloc(PAGE, PAGE);
    CHECK_EQ(result_of(io, one), PAGE);
    CHECK_EQ(((unsigned char *)one.buf)[5], 2);
    free(one.buf);
    CHECK_EQ(cringle_close(io), 0);
}

static void driver_is_the_chosen_one(void)
{
    char why[1024];
    struct cringle_params params = { .driver = CRINGLE_DRIVER_EPOLL };
    cringle_io io = opened(&params);
    CHECK_EQ(cringle_driver(io, why, sizeof why), CRINGLE_DRIVER_EPOLL);
    CHECK(strstr(why, "chosen by the program (params.driver)") != NULL);
    CHECK_EQ(cringle_driver(io, NULL, 0), CRINGLE_DRIVER_EPOLL);
    CHECK_EQ(cringle_driver(io, why, 1), CRINGLE_DRIVER_EPOLL);
    CHECK_EQ(why[0], 0);
    CHECK_EQ(cringle_close(io), 0);
}

static int watchdogs(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *comm = fopen(path, "r");
        if (comm && fgets(name, sizeof name, comm))
            count += strcmp(name, "cringle-watch\n") == 0;
        if (comm)
            fclose(comm);
    }
    closedir(tasks);
    return count;
}

/* Its reports would be noise on the program's standard error. */
static void watchdog_runs_only_if_the_environment_asks(void)
{
    cringle_io io = 0, second;
    setenv("CRINGLE_WATCHDOG", "soon", 1);
    CHECK_EQ(cringle_open(NULL, &io), -EINVAL);
    check_last_error("CRINGLE_WATCHDOG");
    setenv("CRINGLE_WATCHDOG", "60000", 1);
    io = opened(NULL);
    /* A thread names itself. */
    while (watchdogs() != 1)
        sched_yield();
    setenv("CRINGLE_WATCHDOG", "off", 1);
    second = opened(NULL);
    struct cringle_op one = op(CRINGLE_READ, numbered_file(O_RDONLY), memory, PAGE, 0);
    CHECK_EQ(result_of(second, one), PAGE);
    CHECK_EQ(watchdogs(), 1);
    CHECK_EQ(cringle_close(second), 0);
    CHECK_EQ(cringle_close(io), 0);
}

/* With `failures.c` preloaded, which fails the call with this number. */
static void fail_at(const char *function, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(function, text, 1);
}

static void failing_thread_starts_are_errors(void)
{
    struct cringle_params params = { .workers = 4, .driver = CRINGLE_DRIVER_EPOLL };
    struct cringle_op one = op(CRINGLE_READ, numbered_file(O_RDONLY | O_DIRECT), NULL, PAGE, 0);
    int failed = 0;
    one.buf = aligned_alloc(PAGE, PAGE);
    for (int i = 1; i <= 6; i++) {
        cringle_io io;
        fail_at("FAIL_PTHREAD_CREATE", i);
        int result = cringle_open(&params, &io);
        if (result != 0) {
            CHECK_EQ(result, -EAGAIN);
            check_last_error("temporarily unavailable");
            check_last_error("ulimit -u");
            failed++;
            continue;
        }
        CHECK_EQ(result_of(io, one), PAGE);
        CHECK_EQ(cringle_close(io), 0);
    }
    free(one.buf);
    CHECK_EQ(failed, 4);
}

/* As much address space as is used now, and more. */
static void limit_memory(size_t more)
{
    unsigned long pages = 0;
    FILE *used = fopen("/proc/self/statm", "r");
    CHECK(used && fscanf(used, "%lu", &pages) == 1);
    fclose(used);
    struct rlimit limit = { pages * PAGE + more, RLIM_INFINITY };
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

/* Neither a stack for each of them, nor one that cannot be had for a few of them. */
static void many_syncs_need_little_memory(void)
{
    enum { SYNCS = 20000 };
    static struct cringle_op ops[SYNCS];
    static int64_t results[SYNCS];
    cringle_io io = opened(NULL);
    int fd = numbered_file(O_RDWR);
    struct called called;
    for (int i = 0; i < SYNCS; i++)
        ops[i] = op(CRINGLE_FDATASYNC, i % 2 ? fd : -1, NULL, 0, 0);
    sem_init(&called.posted, 0, 0);
    for (size_t more = 256 << 20; more >= 16 << 20; more /= 2) {
        limit_memory(more);
        memset(results, 1, sizeof results);
        CHECK_EQ(cringle_submit(io, ops, SYNCS, results), SYNCS / 2);
        CHECK_EQ(cringle_submit_cb(io, ops, SYNCS, results, count_call, &called, NULL), 0);
        wait_for_post(&called.posted);
        CHECK_EQ(called.failed, SYNCS / 2);
        for (int i = 0; i < SYNCS; i++)
            CHECK_EQ(results[i], i % 2 ? 0 : -EBADF);
    }
    CHECK_EQ(cringle_close(io), 0);
}

static void interrupted_write_of_an_eventfd_is_repeated(void)
{
    cringle_io io = opened(NULL);
    int event = eventfd(0, EFD_CLOEXEC), status = 0;
    uint64_t count;
    /* The first write is that of the check, the second one that of the report. */
    for (int call = 1; call <= 2; call++) {
        fail_at("FAIL_WRITE", call);
        CHECK_EQ(cringle_submit_eventfd(io, NULL, 0, NULL, event, &status, NULL), 0);
        CHECK_EQ(read(event, &count, sizeof count), sizeof count);
        CHECK_EQ(count, 1);
        CHECK_EQ(status, 0);
        CHECK_EQ(getenv("FAIL_WRITE")[0], '0');
    }
    CHECK_EQ(cringle_close(io), 0);
}

const struct test_case system_cases[] = {
    { "signals_stay_those_of_the_program", signals_stay_those_of_the_program },
    { "callback_spawns_a_child_that_signals_end", callback_spawns_a_child_that_signals_end },
    { "few_descriptors_are_an_error_with_words", few_descriptors_are_an_error_with_words },
    { "open_with_any_number_of_descriptors_works_or_fails",
      open_with_any_number_of_descriptors_works_or_fails },
    { "denied_rings_are_replaced_and_explained", denied_rings_are_replaced_and_explained },
    { "driver_is_the_chosen_one", driver_is_the_chosen_one },
    { "watchdog_runs_only_if_the_environment_asks", watchdog_runs_only_if_the_environment_asks },
    { "failing_thread_starts_are_errors", failing_thread_starts_are_errors },
    { "many_syncs_need_little_memory", many_syncs_need_little_memory },
    { "interrupted_write_of_an_eventfd_is_repeated", interrupted_write_of_an_eventfd_is_repeated },
    { NULL, NULL },
};
