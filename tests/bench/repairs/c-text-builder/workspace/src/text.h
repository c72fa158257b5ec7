#ifndef TEXT_H
#define TEXT_H
#include <stddef.h>

/* A text that grows. `bytes` always ends with a zero byte, which `length` does not count. */
struct text {
    char *bytes;
    size_t length;
    size_t capacity;
};

void text_new(struct text *text);
void text_free(struct text *text);
int append(struct text *text, const char *more);
int append_bytes(struct text *text, const char *more, size_t length); /* -1 without memory */

#endif
