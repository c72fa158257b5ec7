#include "check.h"
#include "json.h"
#include "quote.h"

#include <stdlib.h>

static char *body_of(size_t length) {
    char *body = malloc(length + 1);
    memset(body, 'x', length);
    body[length] = 0;
    return body;
}

static int whole(size_t length, int count) {
    char *body = body_of(length);
    struct note notes[3] = {{"a", body}, {"b", body}, {"c", body}};
    struct text text;
    text_new(&text);
    append_notes(&text, notes, count);
    char *wanted = malloc(3 * (length + 64));
    char *end = wanted;
    end += sprintf(end, "[");
    for (int i = 0; i < count; i++)
        end += sprintf(end, "%s{\"title\":\"%s\",\"body\":\"%s\"}", i ? "," : "", notes[i].title, body);
    sprintf(end, "]");
    int equal = strcmp(text.bytes, wanted) == 0 && text.length == strlen(wanted);
    free(wanted);
    free(body);
    text_free(&text);
    return equal;
}

static char *quoted(const char *string) {
    static char kept[200];
    struct text text;
    text_new(&text);
    append_quoted(&text, string);
    snprintf(kept, sizeof kept, "%s", text.bytes);
    text_free(&text);
    return kept;
}

int main(void) {
    begin();
    int wrong = 0;
    for (size_t length = 0; length < 300; length++)
        for (int count = 0; count < 4; count++) wrong += !whole(length, count);
    CHECK(wrong == 0);
    CHECK(whole(0, 0));
    CHECK(whole(5000, 3));
    CHECK(whole(1000000, 1));

    CHECK_TEXT(quoted("a\tb"), "\"a\\tb\"");
    CHECK_TEXT(quoted("\x01\x19"), "\"\\u0001\\u0019\"");
    CHECK_TEXT(quoted("\b\x11"), "\"\\u0008\\u0011\"");
    CHECK_TEXT(quoted("\n\r"), "\"\\n\\r\"");
    CHECK_TEXT(quoted("\"\\/"), "\"\\\"\\\\/\"");
    CHECK_TEXT(quoted("\xc3\xa4\x7f"), "\"\xc3\xa4\x7f\"");
    CHECK_TEXT(quoted(""), "\"\"");

    struct text text;
    text_new(&text);
    CHECK_TEXT(text.bytes, "");
    char *long_one = body_of(100);
    append(&text, long_one);
    CHECK(text.length == 100 && text.capacity > 100);
    append_bytes(&text, "a\0b", 3);
    CHECK(text.length == 103 && memcmp(text.bytes + 100, "a\0b", 4) == 0);
    CHECK(append(&text, "") == 0);
    return finish();
}
