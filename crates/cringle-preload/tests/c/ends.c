// Processes whose first thread ends before the others.

#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static sem_t has_ended, has_caught;
static pthread_key_t key;

static void say(const char *what) { dprintf(1, "%s\n", what); }
static void say_exit(void) { say("exit"); }

static void say_handler(void *unused) {
    (void)unused;
    say("handler");
}

static void end_main(void *unused) {
    (void)unused;
    say("destructor");
    sem_post(&has_ended);
}

static void catch(int signal) {
    (void)signal;
    say("signal");
    sem_post(&has_caught);
}

// Ends after `main`, and after a signal to the process.
static void *outlive(void *name) {
    sem_wait(&has_ended);
    usleep(20000);
    kill(getpid(), SIGUSR1);
    sem_wait(&has_caught);
    say(name);
    return 0;
}

static void start(pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, attributes, routine, argument) != 0)
        say("cannot start");
}

static void exit_main(pthread_attr_t *attributes) {
    sem_init(&has_ended, 0, 0);
    sem_init(&has_caught, 0, 0);
    signal(SIGUSR1, catch);
    atexit(say_exit);
    pthread_key_create(&key, end_main);
    pthread_setspecific(key, "");
    start(attributes, outlive, "thread");
    pthread_cleanup_push(say_handler, 0);
    pthread_exit((void *)3);
    pthread_cleanup_pop(0);
}

static void *pass(void *unused) { return unused; }

static void *say_later(void *unused) {
    usleep(20000);
    say("thread of the child");
    return unused;
}

static void *fork_and_end(void *unused) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        start(0, say_later, 0);
        return unused;
    }
    waitpid(child, &status, 0);
    dprintf(1, "child %d\n", status);
    return unused;
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    pthread_attr_t of_the_system;
    pthread_attr_init(&of_the_system);
    pthread_attr_setinheritsched(&of_the_system, PTHREAD_EXPLICIT_SCHED);
    if (strcmp(what, "before-a-fiber") == 0)
        exit_main(0);
    if (strcmp(what, "before-a-thread") == 0) {
        start(0, pass, 0);
        exit_main(&of_the_system);
    }
    if (strcmp(what, "alone") == 0) {
        atexit(say_exit);
        pthread_exit((void *)3);
    }
    if (strcmp(what, "child") == 0) {
        pthread_t thread;
        pthread_create(&thread, 0, fork_and_end, 0);
        pthread_join(thread, 0);
    }
    return 2;
}
