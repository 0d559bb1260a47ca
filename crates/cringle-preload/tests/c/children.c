/* Children of threads: which signals they block. */

#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void check(int is_right, const char *what)
{
    if (!is_right) {
        printf("wrong: %s\n", what);
        exit(1);
    }
}

/* The signals from SIGHUP to SIGTERM that the caller blocks. */
static int blocked(void)
{
    sigset_t set;
    int bits = 0;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    for (int signal = SIGHUP; signal <= SIGTERM; signal++)
        bits |= sigismember(&set, signal) << signal;
    return bits == 1 << SIGUSR1 ? 1 : bits == 1 << SIGUSR2 ? 2 : bits ? 3 : 0;
}

static int status_of(pid_t child)
{
    int status;
    check(child > 0 && waitpid(child, &status, 0) == child, "a child ends");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void set_mask(int signal)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_SETMASK, &set, NULL);
}

static int spawned(const posix_spawnattr_t *attributes)
{
    char *arguments[] = {"children", "blocked", NULL};
    pid_t child;
    check(posix_spawn(&child, "/proc/self/exe", NULL, attributes, arguments, environ) == 0,
          "posix_spawn");
    return status_of(child);
}

static void *have_children(void *expected)
{
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t child = fork();
    if (child == 0)
        _exit(blocked());
    check(status_of(child) == *(int *)expected, "the mask of a forked child");
    check(spawned(NULL) == *(int *)expected, "the mask of a spawned child");
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    check(spawned(&attributes) == *(int *)expected, "the mask of a child with attributes");
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    check(spawned(&attributes) == 0, "the mask that the attributes have");
    return NULL;
}

static void *have_children_with_another(void *unused)
{
    int expected = 2;
    (void)unused;
    set_mask(SIGUSR2);
    return have_children(&expected);
}

static void run(void *(*routine)(void *), void *argument)
{
    pthread_t thread;
    check(pthread_create(&thread, NULL, routine, argument) == 0, "a thread starts");
    check(pthread_join(thread, NULL) == 0, "a thread is joined");
}

int main(int count, char **arguments)
{
    int inherited = 1;
    (void)arguments;
    if (count == 2)
        return blocked();
    set_mask(SIGUSR1);
    run(have_children, &inherited);
    run(have_children_with_another, NULL);
    puts("right");
    return 0;
}
