/* What only a thread of the system can do, by threads that may be fibers. Each case prints what
   it has seen. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 6
#define ROUNDS 200

static int bytes[2], lines[2], balls[2][2];
static atomic_int flag, spinning;
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

/* The instruction, which no library can define. */
static long read_by_instruction(int file, void *buffer, size_t size)
{
    long result;
#if defined(__x86_64__)
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_read), "D"(file), "S"(buffer), "d"(size)
                     : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = SYS_read, first __asm__("x0") = file;
    register void *second __asm__("x1") = buffer;
    register size_t third __asm__("x2") = size;
    __asm__ volatile("svc #0" : "+r"(first) : "r"(number), "r"(second), "r"(third) : "memory");
    result = first;
#endif
    return result;
}

static void *read_raw(void *unused)
{
    char byte;
    (void)unused;
    check(read_by_instruction(bytes[0], &byte, 1) == 1, "a byte is read");
    return (void *)(long)byte;
}

static void *read_line(void *stream)
{
    char line[16];
    check(fgets(line, sizeof line, stream) != NULL, "a line is read");
    return (void *)(long)line[0];
}

static void *play(void *number)
{
    long me = (long)number;
    char ball;
    for (int round = 0; round < ROUNDS; round++) {
        check(read(balls[me][0], &ball, 1) == 1, "the ball comes");
        check(write(balls[1 - me][1], &ball, 1) == 1, "the ball goes");
    }
    return NULL;
}

static void play_a_game(void)
{
    pthread_t players[2] = {start(play, (void *)0), start(play, (void *)1)};
    check(write(balls[0][1], "o", 1) == 1, "the game begins");
    join(players[0]);
    join(players[1]);
}

static void open_pipes(void)
{
    check(!pipe(bytes) && !pipe(lines) && !pipe(balls[0]) && !pipe(balls[1]), "pipes");
}

static void blocked(void)
{
    pthread_t raw[MANY], stdio;
    FILE *stream = fdopen(lines[0], "r");
    for (int i = 0; i < MANY; i++)
        raw[i] = start(read_raw, NULL);
    stdio = start(read_line, stream);
    play_a_game();
    puts("game");
    check(write(bytes[1], "rrrrrr", MANY) == MANY && write(lines[1], "line\n", 5) == 5, "writes");
    for (int i = 0; i < MANY; i++)
        check(join(raw[i]) == 'r', "each got a byte");
    check(join(stdio) == 'l', "the line");
    puts("joined");
}

static void *spin(void *unused)
{
    (void)unused;
    atomic_fetch_add(&spinning, 1);
    while (!atomic_load(&flag))
        ;
    return (void *)9;
}

static void *end_spins(void *unused)
{
    (void)unused;
    while (atomic_load(&spinning) < MANY)
        usleep(1000);
    atomic_store(&flag, 1);
    return NULL;
}

static void spins(void)
{
    pthread_t spinners[MANY], other = start(end_spins, NULL);
    for (int i = 0; i < MANY; i++)
        spinners[i] = start(spin, NULL);
    for (int i = 0; i < MANY; i++)
        check(join(spinners[i]) == 9, "a spinner ends");
    join(other);
    puts("spun");
}

static void *wait_for_signal(void *set)
{
    int signal = 0;
    check(sigwait(set, &signal) == 0, "sigwait");
    return (void *)(long)signal;
}

static void waits(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t waiter = start(wait_for_signal, &set);
    kill(getpid(), SIGUSR1);
    check(join(waiter) == SIGUSR1, "the signal");
    puts("waited");
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
    check(local_value == 1, "the handler's thread-local");
}

static void *unblock(void *set)
{
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
    while (!atomic_load(&handled))
        usleep(1000);
    check_handler();
    return NULL;
}

static void *raise_one(void *unused)
{
    (void)unused;
    check(raise(SIGUSR1) == 0, "raise");
    check_handler();
    return NULL;
}

static void handlers(void)
{
    struct sigaction action = {.sa_handler = handle};
    sigset_t set;
    sigaction(SIGUSR1, &action, NULL);
    join(start(raise_one, NULL));
    puts("raised");
    atomic_store(&handled, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t receiver = start(unblock, &set);
    kill(getpid(), SIGUSR1);
    join(receiver);
    puts("received");
}

static void *use_signal_stack(void *unused)
{
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    (void)unused;
    check(sigaltstack(&stack, NULL) == 0, "sigaltstack");
    sigaction(SIGUSR2, &action, NULL);
    check(pthread_kill(pthread_self(), SIGUSR2) == 0, "pthread_kill");
    char *first = stack.ss_sp;
    check(handled_at >= first && handled_at < first + (1 << 16), "it is the handler's");
    return NULL;
}

static void stack(void)
{
    join(start(use_signal_stack, NULL));
    puts("on the stack");
}

static void compute(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    long end = now.tv_sec * 1000 + now.tv_nsec / 1000000 + 30;
    do {
        for (volatile int i = 0; i < 100000; i++)
            ;
        syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &now);
    } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < end);
}

static void *change(void *number)
{
    long mine = (long)number;
    pthread_mutexattr_t kind;
    pthread_mutex_t mutex;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &kind);
    for (int round = 0; round < 8; round++) {
        pthread_t self = pthread_self();
        void *memory = malloc(100);
        memset(memory, (int)mine, 100);
        local_value = mine;
        errno = (int)mine;
        check(pthread_mutex_lock(&mutex) == 0, "lock");
        compute();
        check(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0, "again");
        check(pthread_mutex_unlock(&mutex) == 0, "unlock");
        check(local_value == mine && errno == (int)mine, "thread-locals");
        check(pthread_equal(self, pthread_self()), "the thread");
        check(((char *)memory)[99] == (char)mine, "memory");
        free(memory);
        usleep(1000);
    }
    return number;
}

static void locals(void)
{
    pthread_t threads[MANY];
    for (long i = 0; i < MANY; i++)
        threads[i] = start(change, (void *)(i + 1));
    for (long i = 0; i < MANY; i++)
        check(join(threads[i]) == i + 1, "the value");
    puts("kept");
}

static void *leave(void *unused)
{
    (void)unused;
    raise(SIGCONT);
    pthread_exit((void *)11);
}

static void *nothing(void *value)
{
    return value;
}

static void *fork_and_return(void *unused)
{
    int status;
    (void)unused;
    raise(SIGCONT);
    pid_t child = fork();
    if (child == 0) {
        check(join(start(nothing, (void *)5)) == 5, "a thread of the child");
        return NULL;
    }
    check(waitpid(child, &status, 0) == child && status == 0, "the child's status");
    return NULL;
}

static void ends(void)
{
    check(join(start(leave, NULL)) == 11, "the value of pthread_exit");
    puts("left");
    join(start(fork_and_return, NULL));
    puts("forked");
}

static void *read_until_signal(void *unused)
{
    char byte;
    (void)unused;
    atomic_fetch_add(&spinning, 1);
    check(read(bytes[0], &byte, 1) == -1 && errno == EINTR, "read is interrupted");
    check_handler();
    return (void *)3;
}

static void *wait_until_signal(void *semaphore)
{
    atomic_fetch_add(&spinning, 1);
    check(sem_wait(semaphore) == -1 && errno == EINTR, "sem_wait is interrupted");
    check_handler();
    return (void *)4;
}

/* Sends the signal until its handler has run. */
static void signal_and_join(pthread_t thread, long value)
{
    while (!atomic_load(&spinning))
        usleep(1000);
    while (!atomic_load(&handled)) {
        check(pthread_kill(thread, SIGUSR1) == 0, "pthread_kill");
        usleep(20000);
    }
    check(join(thread) == value, "the value");
    atomic_store(&handled, 0);
    atomic_store(&spinning, 0);
}

static void killed(void)
{
    struct sigaction action = {.sa_handler = handle};
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    sigaction(SIGUSR1, &action, NULL);
    signal_and_join(start(read_until_signal, NULL), 3);
    puts("interrupted");
    signal_and_join(start(wait_until_signal, &semaphore), 4);
    puts("woken");
}

int main(int count, char **arguments)
{
    struct { const char *name; void (*run)(void); } cases[] = {
        {"blocked", blocked}, {"spins", spins}, {"waits", waits}, {"handlers", handlers},
        {"stack", stack}, {"locals", locals}, {"ends", ends},
        {"killed", killed},
    };
    open_pipes();
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (count > 1 && strcmp(arguments[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    }
    return 2;
}
