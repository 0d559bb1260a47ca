/* Opens COUNT connections to PORT, and sends a number over each, ROUNDS times. Prints the answers
 * that are right, then waits for the end of its standard input with the connections open. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    unsigned long count = strtoul(argv[2], NULL, 10), rounds = strtoul(argv[3], NULL, 10);
    unsigned long right = 0;
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((unsigned short)atoi(argv[1])) };
    int *sockets = calloc(count, sizeof *sockets);
    double begin = now();
    for (unsigned long i = 0; i < count; i++) {
        sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(sockets[i], (struct sockaddr *)&address, sizeof address)) {
            perror("connect");
            return 1;
        }
    }
    double connected = now();
    for (unsigned long round = 1; round <= rounds; round++) {
        char line[64], expected[64];
        for (unsigned long i = 0; i < count; i++) {
            int length = snprintf(line, sizeof line, "%lu\n", i);
            if (send(sockets[i], line, (size_t)length, MSG_NOSIGNAL) != length)
                perror("send");
        }
        for (unsigned long i = 0; i < count; i++) {
            ssize_t length = recv(sockets[i], line, sizeof line - 1, 0);
            line[length > 0 ? length : 0] = 0;
            snprintf(expected, sizeof expected, "%lu %lu\n", i * i, round);
            right += strcmp(line, expected) == 0;
        }
    }
    printf("%lu %f %f\n", right, connected - begin, now() - connected);
    fflush(stdout);
    char byte;
    return read(0, &byte, 1) < 0;
}
