#include "text.h"

#include <stdlib.h>
#include <string.h>

void text_new(struct text *text) {
    text->capacity = 16;
    text->bytes = malloc(text->capacity);
    text->length = 0;
    text->bytes[0] = 0;
}

void text_free(struct text *text) {
    free(text->bytes);
    text->bytes = NULL;
}

int append_bytes(struct text *text, const char *more, size_t length) {
    if (text->length + length >= text->capacity) {
        size_t capacity = text->capacity * 2;
        char *grown = realloc(text->bytes, capacity);
        if (!grown) return -1;
        text->bytes = grown;
        text->capacity = capacity;
    }
    size_t room = text->capacity - text->length - 1;
    if (length > room) length = room;
    memcpy(text->bytes + text->length, more, length);
    text->length += length;
    text->bytes[text->length] = 0;
    return 0;
}

int append(struct text *text, const char *more) {
    return append_bytes(text, more, strlen(more));
}
