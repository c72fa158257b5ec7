#ifndef LINES_H
#define LINES_H
#include <stdio.h>

#define LINE_SIZE 64

struct lines {
    FILE *file;
    unsigned long number; /* of the line read last, from 1 */
    char buffer[LINE_SIZE];
};

void lines_open(struct lines *lines, FILE *file);

/* The next line without its end, NULL at the end of the file. It is valid until the next call. */
char *lines_next(struct lines *lines);

#endif
