/* The reply to a request for a map: a JSON object, of whose members only numbers are read. */
#include "internal.h"

#include <stdlib.h>

struct text {
  const char *next, *end;
};

static void skip_space(struct text *t) {
  while (t->next < t->end && (*t->next == ' ' || *t->next == '\t' || *t->next == '\r' || *t->next == '\n')) t->next++;
}

static bool skip(struct text *t, char wanted) {
  skip_space(t);
  if (t->next == t->end || *t->next != wanted) return false;
  t->next++;
  return true;
}

/* Reads a string. Its escapes stay as they are: no name that is looked for has one. */
static bool read_string(struct text *t, struct text *content) {
  if (!skip(t, '"')) return false;
  content->next = t->next;
  while (t->next < t->end && *t->next != '"') t->next += *t->next == '\\' && t->end - t->next > 1 ? 2 : 1;
  content->end = t->next;
  return skip(t, '"');
}

/* Skips any value. Brackets are counted without regard to their kinds. */
static bool skip_value(struct text *t) {
  int depth = 0;
  struct text content;
  do {
    skip_space(t);
    if (t->next == t->end) return false;
    if (*t->next == '"') {
      if (!read_string(t, &content)) return false;
      continue;
    }
    if (*t->next == '{' || *t->next == '[') depth++;
    else if (*t->next == '}' || *t->next == ']') depth--;
    else if (depth == 0) while (t->next + 1 < t->end && !strchr(",}] \t\r\n", t->next[1])) t->next++;
    t->next++;
  } while (depth > 0);
  return depth == 0;
}

static bool read_number(struct text *t, uint64_t *number) {
  const char *start = t->next;
  for (*number = 0; t->next < t->end && *t->next >= '0' && *t->next <= '9'; t->next++) {
    uint64_t digit = (uint64_t)(*t->next - '0');
    if (*number > (UINT64_MAX - digit) / 10) return false;
    *number = *number * 10 + digit;
  }
  return t->next > start && (t->next == t->end || strchr(",} \t\r\n", *t->next));
}

static bool is_name(const struct text *name, const char *wanted) {
  size_t size = strlen(wanted);
  return (size_t)(name->end - name->next) == size && memcmp(name->next, wanted, size) == 0;
}

bool reply_read(struct reply *reply, const uint8_t *data, size_t size) {
  static const char *const names[] = {"version", "generation", "size", "position", "missed"};
  enum { REQUIRED = 4, NAMES = 5 };
  uint64_t numbers[NAMES] = {0, 0, 0, 0, SDM_GAP_UNKNOWN};
  unsigned found = 0;
  struct text t = {(const char *)data, (const char *)data + size}, name;
  if (!skip(&t, '{')) return false;
  do {
    if (!read_string(&t, &name) || !skip(&t, ':')) return false;
    skip_space(&t);
    unsigned index = 0;
    while (index < NAMES && !is_name(&name, names[index])) index++;
    bool is_null = index >= REQUIRED && t.end - t.next >= 4 && memcmp(t.next, "null", 4) == 0;
    if (index == NAMES || is_null ? !skip_value(&t) : !read_number(&t, &numbers[index])) return false;
    if (index < REQUIRED) found |= 1u << index;
  } while (skip(&t, ','));
  if (!skip(&t, '}') || found != (1u << REQUIRED) - 1) return false;
  skip_space(&t);
  *reply = (struct reply){.version = numbers[0], .generation = numbers[1], .size = numbers[2], .position = numbers[3], .missed = numbers[4]};
  return t.next == t.end;
}
