// The ends of threads, as C code makes them. The test compiles this file with `-fexceptions` and
// without.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

struct result {
    void *value;
    char log[32];
};

// Values for the first two end their thread again.
static pthread_key_t keys[3];

__attribute__((constructor)) static void make_keys(void);

static void note(struct result *result, char what) { result->log[strlen(result->log)] = what; }

static void note_a(void *result) { note(result, 'a'); }

static void note_b(void *result) {
    usleep(1000);
    note(result, 'b');
}

static void exit_in_destructor(void *result) {
    note(result, '1');
    pthread_cleanup_push(note_a, result);
    pthread_exit((void *)7);
    pthread_cleanup_pop(0);
}

static void note_in_destructor(void *result) { note(result, '2'); }

static void make_keys(void) {
    pthread_key_create(&keys[0], exit_in_destructor);
    // A fiber's destructors run in the order of the keys.
    do
        pthread_key_create(&keys[1], exit_in_destructor);
    while (keys[1] < keys[0]);
    do
        pthread_key_create(&keys[2], note_in_destructor);
    while (keys[2] < keys[1]);
}

__attribute__((noinline)) static void exit_below(void *value) { pthread_exit(value); }

void *exit_in_handlers(void *result) {
    pthread_setspecific(keys[2], result);
    pthread_cleanup_push(note_a, result);
    pthread_cleanup_push(note_b, result);
    exit_below((void *)12);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return 0;
}

void *exit_in_a_destructor(void *result) {
    for (int i = 0; i < 3; i++)
        pthread_setspecific(keys[i], result);
    return (void *)3;
}

void *return_after_handlers(void *result) {
    pthread_cleanup_push(note_a, result);
    pthread_cleanup_pop(1);
    pthread_cleanup_push(note_b, result);
    pthread_cleanup_pop(0);
    return (void *)2;
}

void *exit_by_c11(void *result) {
    pthread_cleanup_push(note_a, result);
    thrd_exit(-1);
    pthread_cleanup_pop(0);
    return 0;
}

// Starts a thread, and returns what it has done.
void run(void *(*start)(void *), struct result *result) {
    pthread_t thread;
    memset(result, 0, sizeof *result);
    if (pthread_create(&thread, 0, start, result) == 0)
        pthread_join(thread, &result->value);
}

static int reader, writer;

static void write_a(void *unused) {
    (void)unused;
    (void)!write(writer, "a", 1);
}

// In a child, where a thread has no log that another process sees.
static void end_child(int exits) {
    static struct result log;
    pthread_setspecific(keys[2], &log);
    pthread_cleanup_push(write_a, 0);
    if (exits)
        pthread_exit((void *)9);
    pthread_cleanup_pop(1);
}

static void *fork_and_end(void *result) {
    int exits = ((struct result *)result)->value != 0;
    pid_t child = fork();
    if (child == 0) {
        end_child(exits);
        return (void *)9;
    }
    int status = -1;
    close(writer);
    note(result, read(reader, &status, 1) == 1 ? (char)status : '-');
    note(result, read(reader, &status, 1) == 0 ? 'e' : '-');
    close(reader);
    waitpid(child, &status, 0);
    return (void *)(long)status;
}

// Starts a thread that forks, and whose child ends. Returns the child's status.
void run_fork(int exits, struct result *result) {
    int ends[2];
    pthread_t thread;
    memset(result, 0, sizeof *result);
    result->value = (void *)(long)exits;
    (void)!pipe2(ends, O_CLOEXEC);
    reader = ends[0], writer = ends[1];
    if (pthread_create(&thread, 0, fork_and_end, result) == 0)
        pthread_join(thread, &result->value);
}
