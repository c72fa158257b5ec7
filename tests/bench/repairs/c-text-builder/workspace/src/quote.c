#include "quote.h"

void append_quoted(struct text *text, const char *string) {
    append(text, "\"");
    for (const char *p = string; *p; p++) {
        switch (*p) {
        case '"':
            append(text, "\\\"");
            break;
        case '\\':
            append(text, "\\\\");
            break;
        case '\n':
            append(text, "\\n");
            break;
        case '\r':
            append(text, "\\r");
            break;
        default:
            append_bytes(text, p, 1);
        }
    }
    append(text, "\"");
}
