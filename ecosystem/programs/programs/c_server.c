/* A server with a thread for each connection, as textbooks write it. It prints its port.
 * A request is a number in a line; the answer is its square. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long answered;
static __thread unsigned long of_this_thread;

static void *serve(void *argument)
{
    int client = (int)(long)argument;
    char line[32];
    ssize_t length;
    while ((length = recv(client, line, sizeof line - 1, 0)) > 0) {
        line[length] = 0;
        unsigned long number = strtoul(line, NULL, 10);
        of_this_thread++;
        pthread_mutex_lock(&lock);
        answered++;
        pthread_mutex_unlock(&lock);
        length = snprintf(line, sizeof line, "%lu %lu\n", number * number, of_this_thread);
        if (send(client, line, (size_t)length, MSG_NOSIGNAL) != length)
            break;
    }
    close(client);
    return NULL;
}

int main(void)
{
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 4096)
        || getsockname(listener, (struct sockaddr *)&address, &length)) {
        perror("listen");
        return 1;
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        pthread_t thread;
        if (client < 0) {
            perror("accept");
            return 1;
        }
        int error = pthread_create(&thread, NULL, serve, (void *)(long)client);
        if (error) {
            fprintf(stderr, "pthread_create: %s\n", strerror(error));
            return 1;
        }
        pthread_detach(thread);
    }
}
