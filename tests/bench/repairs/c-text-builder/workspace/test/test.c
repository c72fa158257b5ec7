#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "quote.h"

int main(void) {
    struct text text;
    text_new(&text);
    append_notes(&text, NULL, 0);
    assert(strcmp(text.bytes, "[]") == 0);
    text_free(&text);
    text_new(&text);
    append_quoted(&text, "a \"b\"\n\\");
    assert(strcmp(text.bytes, "\"a \\\"b\\\"\\n\\\\\"") == 0);
    text_free(&text);
    puts("ok");
    return 0;
}
