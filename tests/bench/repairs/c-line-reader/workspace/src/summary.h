#ifndef SUMMARY_H
#define SUMMARY_H
#include <stdio.h>

#define MAX_HOSTS 100
#define HOST_SIZE 32

struct summary {
    int hosts;
    unsigned long records;
    unsigned long lines;
    unsigned long longest; /* characters of the longest message */
    struct { char name[HOST_SIZE]; unsigned long count; } host[MAX_HOSTS];
};

/* Count a log; -1 where it has more hosts than there is room for. */
int summarise(FILE *file, struct summary *summary);
unsigned long records_of(const struct summary *summary, const char *host);

#endif
