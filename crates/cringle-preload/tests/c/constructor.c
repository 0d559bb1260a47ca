/* As a library: its constructor starts a thread and waits for it. As a program: it loads the library
   that the first argument names, and then starts a thread itself. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *say(void *what) {
    const char *line = what;
    size_t bytes = 0;
    while (line[bytes++] != '\n')
        ;
    if (write(1, line, bytes) != (ssize_t)bytes)
        _exit(1);
    return NULL;
}

static void say_on_a_thread(char *line) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, say, line) != 0 || pthread_join(thread, NULL) != 0)
        _exit(1);
}

#ifdef LIBRARY
__attribute__((constructor)) static void construct(void) { say_on_a_thread("constructor's\n"); }
#else
int main(int count, char **arguments) {
    if (count != 2 || dlopen(arguments[1], RTLD_NOW) == NULL)
        return 1;
    say_on_a_thread("main's\n");
    return 0;
}
#endif
