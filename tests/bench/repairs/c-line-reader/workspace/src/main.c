#include <stdio.h>

#include "summary.h"

int main(int argc, char **argv) {
    struct summary summary;
    FILE *file = argc > 1 ? fopen(argv[1], "r") : stdin;
    if (!file) {
        perror(argv[1]);
        return 1;
    }
    if (summarise(file, &summary) < 0) {
        fprintf(stderr, "logsum: more than %d hosts\n", MAX_HOSTS);
        return 1;
    }
    for (int i = 0; i < summary.hosts; i++) printf("%8lu %s\n", summary.host[i].count, summary.host[i].name);
    return 0;
}
