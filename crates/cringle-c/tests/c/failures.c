/*
 * To preload: functions of libc that fail. The environment variable FAIL_… has the number of the
 * call that fails next; each call decrements it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether this call fails. */
static int fails(const char *name)
{
    pthread_mutex_lock(&lock);
    char *text = getenv(name);
    int left = text ? atoi(text) : 0;
    /* In place, because `setenv` is not for several threads. The numbers have one digit. */
    if (left > 0)
        text[0] = (char)('0' + left - 1);
    pthread_mutex_unlock(&lock);
    return left == 1;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *arg)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        dlsym(RTLD_NEXT, "pthread_create");
    return fails("FAIL_PTHREAD_CREATE") ? EAGAIN : next(thread, attributes, run, arg);
}

ssize_t write(int fd, const void *from, size_t count)
{
    ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    if (fails("FAIL_WRITE")) {
        errno = EINTR;
        return -1;
    }
    return next(fd, from, count);
}
