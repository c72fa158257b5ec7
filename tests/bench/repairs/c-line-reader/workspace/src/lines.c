#include "lines.h"

#include <string.h>

void lines_open(struct lines *lines, FILE *file) {
    lines->file = file;
    lines->number = 0;
}

char *lines_next(struct lines *lines) {
    if (!fgets(lines->buffer, LINE_SIZE, lines->file)) return NULL;
    lines->buffer[strcspn(lines->buffer, "\r\n")] = 0;
    lines->number++;
    return lines->buffer;
}
