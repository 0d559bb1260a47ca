/* Signals that threads send to themselves and to others. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int bytes[2];
static atomic_int begun, ended;
static _Thread_local long local_value;

static void check(int is_right, const char *what)
{
    if (!is_right) {
        printf("wrong: %s\n", what);
        exit(1);
    }
}

static pthread_t start(void *(*routine)(void *), void *argument)
{
    pthread_t thread;
    check(pthread_create(&thread, NULL, routine, argument) == 0, "a thread starts");
    return thread;
}

static long join(pthread_t thread)
{
    void *value;
    check(pthread_join(thread, &value) == 0, "a thread is joined");
    return (long)value;
}

static pthread_t handled_on;
static char *handled_at;
static atomic_int handled;

static void handle(int signal)
{
    char here;
    (void)signal;
    handled_on = pthread_self();
    handled_at = &here;
    local_value++;
    atomic_fetch_add(&handled, 1);
}

static void check_handler(void)
{
    pthread_attr_t attributes;
    void *stack;
    size_t size;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &size);
    check(pthread_equal(handled_on, pthread_self()), "the handler's thread");
    check(handled_at >= (char *)stack && handled_at < (char *)stack + size, "the handler's stack");
    check(local_value > 0, "the handler's thread-local");
}

static void *raise_one(void *unused)
{
    (void)unused;
    check(raise(SIGUSR1) == 0, "raise");
    check_handler();
    return NULL;
}

static void *read_until_signal(void *unused)
{
    char byte;
    (void)unused;
    atomic_fetch_add(&begun, 1);
    check(read(bytes[0], &byte, 1) == -1 && errno == EINTR, "read is interrupted");
    check_handler();
    atomic_store(&ended, 1);
    return (void *)3;
}

static void *wait_until_signal(void *semaphore)
{
    atomic_fetch_add(&begun, 1);
    check(sem_wait(semaphore) == -1 && errno == EINTR, "sem_wait is interrupted");
    check_handler();
    atomic_store(&ended, 1);
    return (void *)4;
}

/* Sends the signal until the thread has ended: its handler may run before the thread waits. */
static void signal_and_join(pthread_t thread, long value)
{
    while (!atomic_load(&begun))
        usleep(1000);
    while (!atomic_load(&ended)) {
        check(pthread_kill(thread, SIGUSR1) == 0, "pthread_kill");
        usleep(20000);
    }
    check(join(thread) == value, "the value");
    atomic_store(&handled, 0);
    atomic_store(&begun, 0);
    atomic_store(&ended, 0);
}

static void *write_to_nobody(void *unused)
{
    int ends[2];
    check(pipe(ends) == 0 && close(ends[0]) == 0, "a pipe without a reader");
    check(write(ends[1], "x", 1) == -1 && errno == EPIPE, "the write fails");
    return unused;
}

/* The status of a process whose thread writes to a pipe that nobody reads. */
static int status_of_writer(void (*handler)(int), int is_blocked)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGPIPE);
        signal(SIGPIPE, handler);
        pthread_sigmask(is_blocked ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
        atomic_store(&handled, 0);
        join(start(write_to_nobody, NULL));
        _exit(handled);
    }
    check(waitpid(child, &status, 0) == child, "the child ends");
    return status;
}

static void write_without_reader(void)
{
    int status = status_of_writer(SIG_DFL, 0);
    check(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE, "SIGPIPE ends the process");
    check(status_of_writer(SIG_IGN, 0) == 0, "it is ignored");
    check(status_of_writer(SIG_DFL, 1) == 0, "it is blocked");
    status = status_of_writer(handle, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 1, "it is handled");
}

int main(void)
{
    struct sigaction action = {.sa_handler = handle};
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    check(pipe(bytes) == 0, "a pipe");
    setvbuf(stdout, NULL, _IONBF, 0);
    sigaction(SIGUSR1, &action, NULL);
    check(join(start(raise_one, NULL)) == 0, "it returns");
    puts("raised");
    atomic_store(&handled, 0);
    signal_and_join(start(read_until_signal, NULL), 3);
    puts("interrupted");
    signal_and_join(start(wait_until_signal, &semaphore), 4);
    puts("woken");
    write_without_reader();
    puts("piped");
    return 0;
}
