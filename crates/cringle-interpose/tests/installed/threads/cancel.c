// Threads that are cancelled, in each kind of wait. The test compiles this file as `exit.c`.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

// What a thread uses and leaves.
struct wait {
    void (*call)(struct wait *);
    // Written by the thread right before its call.
    sem_t *begins;
    int fds[2], listener, instance;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    sem_t semaphore;
    pthread_t other;
    pid_t child;
    int has_returned, was_locked, has_written, error;
};

static void call_read(struct wait *it) { char c; (void)!read(it->fds[0], &c, 1); }
static void call_recv(struct wait *it) { char c; (void)!recv(it->fds[0], &c, 1, 0); }
static void call_poll(struct wait *it) {
    struct pollfd fd = {.fd = it->fds[0], .events = POLLIN};
    poll(&fd, 1, -1);
}
static void call_poll_for_long(struct wait *it) {
    struct pollfd fd = {.fd = it->fds[0], .events = POLLIN};
    poll(&fd, 1, 3600000);
}
static void call_select(struct wait *it) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(it->fds[0], &set);
    select(it->fds[0] + 1, &set, 0, 0, 0);
}
static void call_epoll(struct wait *it) {
    struct epoll_event event;
    epoll_wait(it->instance, &event, 1, -1);
}
static void call_accept(struct wait *it) { accept(it->listener, 0, 0); }
static void call_sleep(struct wait *it) { (void)it; sleep(3600); }
static void call_nanosleep(struct wait *it) {
    (void)it;
    nanosleep(&(struct timespec){.tv_sec = 3600}, 0);
}
static void call_sem(struct wait *it) { sem_wait(&it->semaphore); }
static void call_sem_for_long(struct wait *it) {
    sem_timedwait(&it->semaphore, &(struct timespec){.tv_sec = 1L << 33});
}
static void call_join(struct wait *it) { pthread_join(it->other, 0); }
static void unlock(void *argument) {
    struct wait *it = argument;
    it->was_locked = pthread_mutex_trylock(&it->mutex) == EBUSY;
    pthread_mutex_unlock(&it->mutex);
}
static void call_cond(struct wait *it) {
    pthread_mutex_lock(&it->mutex);
    pthread_cleanup_push(unlock, it);
    pthread_cond_wait(&it->condition, &it->mutex);
    pthread_cleanup_pop(1);
}
static void call_cond_for_long(struct wait *it) {
    pthread_mutex_lock(&it->mutex);
    pthread_cleanup_push(unlock, it);
    pthread_cond_timedwait(&it->condition, &it->mutex, &(struct timespec){.tv_sec = 1L << 33});
    pthread_cleanup_pop(1);
}
static void call_testcancel(struct wait *it) {
    (void)it;
    for (;;) {
        pthread_testcancel();
        sched_yield();
    }
}
static void call_wait(struct wait *it) { waitpid(it->child, 0, 0); }
// A cancel reaches it while cancels are disabled: it acts later, before the next call does anything.
static void call_disabled(struct wait *it) {
    int before = -1;
    char c = 'c';
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    it->error = before != PTHREAD_CANCEL_ENABLE || read(it->fds[0], &c, 1) != 1;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    it->error |= before != PTHREAD_CANCEL_DISABLE;
    it->has_written = write(it->fds[0], &c, 1) == 1;
}
// A lock is no cancellation point.
static void call_lock(struct wait *it) {
    pthread_mutex_lock(&it->mutex);
    it->was_locked = 1;
    pthread_mutex_unlock(&it->mutex);
    pthread_testcancel();
}
static void call_self(struct wait *it) {
    pthread_cancel(pthread_self());
    it->was_locked = 1;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
}

static const struct {
    const char *name;
    void (*call)(struct wait *);
} CALLS[] = {
    {"read", call_read},       {"recv", call_recv},
    {"poll", call_poll},       {"poll for long", call_poll_for_long},
    {"select", call_select},   {"epoll_wait", call_epoll},
    {"accept", call_accept},   {"sleep", call_sleep},
    {"nanosleep", call_nanosleep}, {"sem_wait", call_sem},
    {"sem_timedwait", call_sem_for_long}, {"pthread_join", call_join},
    {"pthread_cond_wait", call_cond}, {"pthread_cond_timedwait", call_cond_for_long},
    {"pthread_testcancel", call_testcancel}, {"disabled", call_disabled},
    {"lock", call_lock}, {"self", call_self}, {"waitpid", call_wait},
};

const char *name_of(unsigned call) {
    return call < sizeof CALLS / sizeof CALLS[0] ? CALLS[call].name : 0;
}

// The handler waits, and writes: no cancel disturbs it.
static void write_cleanly(void *argument) {
    struct wait *it = argument;
    char c = 'w';
    usleep(1000);
    it->has_written |= write(it->fds[0], &c, 1) == 1 ? 2 : 0;
}

static void *begin(void *argument) {
    struct wait *it = argument;
    pthread_cleanup_push(write_cleanly, it);
    sem_post(it->begins);
    it->call(it);
    it->has_returned = 1;
    pthread_cleanup_pop(0);
    return 0;
}

static void *wait_for_post(void *semaphore) {
    sem_wait(semaphore);
    return 0;
}

// Cancels a thread before its call, or within it. Returns a text about what was wrong.
const char *cancel(unsigned call, int within) {
    struct wait it = {.call = CALLS[call].call};
    const char *name = CALLS[call].name;
    sem_t begins, ends;
    pthread_t thread;
    void *value = 0;
    sem_init(&begins, 0, 0);
    sem_init(&ends, 0, 0);
    sem_init(&it.semaphore, 0, 0);
    it.begins = &begins;
    pthread_mutex_init(&it.mutex, 0);
    pthread_cond_init(&it.condition, 0);
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, it.fds);
    it.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    listen(it.listener, 1);
    it.instance = epoll_create1(EPOLL_CLOEXEC);
    int is_lock = strcmp(name, "lock") == 0, is_wait = strcmp(name, "waitpid") == 0;
    it.child = is_wait ? fork() : 0;
    if (is_wait && it.child == 0) {
        for (;;)
            pause();
    }
    pthread_create(&it.other, 0, wait_for_post, &ends);
    if (is_lock)
        pthread_mutex_lock(&it.mutex);
    pthread_create(&thread, 0, begin, &it);
    sem_wait(&begins);
    // Long enough for the thread to wait in its call; it ends in the same way before.
    if (within)
        usleep(5000);
    if (pthread_cancel(thread) != 0)
        return "pthread_cancel";
    // The cancel has time to disturb what it must not.
    usleep(5000);
    if (is_lock)
        pthread_mutex_unlock(&it.mutex);
    if (strcmp(name, "disabled") == 0)
        (void)!write(it.fds[1], "d", 1);
    if (pthread_join(thread, &value) != 0 || value != PTHREAD_CANCELED)
        return "the value";
    if (is_wait) {
        kill(it.child, SIGKILL);
        if (waitpid(it.child, 0, 0) != it.child)
            return "the child";
    }
    // The other thread is still there, also after a cancelled join.
    sem_post(&ends);
    if (pthread_join(it.other, 0) != 0)
        return "the other thread";
    int is_cond = strncmp(name, "pthread_cond", 12) == 0;
    // Cancelled before it waits, it has not locked the mutex, or at the wait.
    if ((is_lock || strcmp(name, "self") == 0 || is_cond) != it.was_locked)
        return "the mutex";
    if (it.has_returned || it.error)
        return "the call";
    char written[2] = "";
    ssize_t count = recv(it.fds[1], written, 2, MSG_DONTWAIT);
    if (it.has_written != 2 || count != 1 || written[0] != 'w')
        return "the handler";
    close(it.fds[0]), close(it.fds[1]), close(it.listener), close(it.instance);
    return 0;
}
