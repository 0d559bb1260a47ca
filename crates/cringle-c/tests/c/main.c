/* Runs the case that the argument names. */
#include "check.h"

int main(int argc, char **argv)
{
    const struct test_case *all[] = { results_cases, misuse_cases, lifecycle_cases, async_cases,
                                      system_cases, registered_cases, large_cases, queue_cases };
    for (size_t group = 0; group < sizeof all / sizeof *all; group++) {
        for (const struct test_case *one = all[group]; one->name; one++) {
            if (argc < 2) {
                printf("%s\n", one->name);
            } else if (strcmp(one->name, argv[1]) == 0) {
                one->run();
                return 0;
            }
        }
    }
    return argc < 2 ? 0 : 2;
}
