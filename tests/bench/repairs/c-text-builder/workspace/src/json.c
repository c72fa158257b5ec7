#include "json.h"

#include "quote.h"

void append_notes(struct text *text, const struct note *notes, int count) {
    append(text, "[");
    for (int i = 0; i < count; i++) {
        struct text one;
        text_new(&one);
        append(&one, i ? ",{\"title\":" : "{\"title\":");
        append_quoted(&one, notes[i].title);
        append(&one, ",\"body\":");
        append_quoted(&one, notes[i].body);
        append(&one, "}");
        append_bytes(text, one.bytes, one.length);
        text_free(&one);
    }
    append(text, "]");
}
