/* check.h: what the test programs share. A failed check ends the program with its place. */
#ifndef CHECK_H
#define CHECK_H
#include "streamd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1); \
    } \
  } while (0)

#define EQUAL(one, other) \
  do { \
    long long left_ = (long long)(one), right_ = (long long)(other); \
    if (left_ != right_) { \
      fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #one, left_, right_); \
      exit(1); \
    } \
  } while (0)

#define SAYS(c, sentence) \
  do { \
    if (strcmp(sdm_error(c), sentence) != 0) { \
      fprintf(stderr, "%s:%d: \"%s\", not \"%s\"\n", __FILE__, __LINE__, sdm_error(c), sentence); \
      exit(1); \
    } \
  } while (0)

/* Ends a hang. */
#define PATIENCE UINT64_C(20000000)

/* The result of sdm_next() once it is not 0. */
static inline int next_of(sdm *c, sdm_subscription *s, sdm_event *e) {
  for (;;) {
    int result = sdm_next(s, e);
    if (result != 0) return result;
    CHECK(sdm_wait(c, PATIENCE) == 1);
    sdm_process(c);
  }
}

/* Whether no event comes for a while. */
static inline bool is_quiet(sdm *c, sdm_subscription *s) {
  sdm_event e;
  for (int turn = 0; turn < 5; turn++) {
    if (sdm_next(s, &e) != 0) return false;
    if (sdm_wait(c, 20000) > 0) sdm_process(c);
  }
  return sdm_next(s, &e) == 0;
}

static inline bool is_text(const sdm_event *e, const char *text) {
  return e->size == strlen(text) && memcmp(e->data, text, e->size) == 0;
}
#endif
