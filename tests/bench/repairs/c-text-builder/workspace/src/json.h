#ifndef JSON_H
#define JSON_H
#include "text.h"

struct note {
    const char *title;
    const char *body;
};

/* Append notes as a JSON array. */
void append_notes(struct text *text, const struct note *notes, int count);

#endif
