#ifndef QUOTE_H
#define QUOTE_H
#include "text.h"

/* Append a string as JSON writes it, with its quotes. */
void append_quoted(struct text *text, const char *string);

#endif
